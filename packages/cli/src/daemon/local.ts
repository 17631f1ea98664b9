/**
 * Parts of the daemon's package that need no running daemon: settings and checks of the host. The package is
 * large, so it is loaded on demand.
 */
import type { DoctorReport, SettingInfo } from "@forkd/contract";

type Environment = NodeJS.ProcessEnv;

export type Fixed = { readonly name: string; readonly done: string };

export async function settingNames(): Promise<string[]> {
  return [...(await import("@forkd/daemon")).settingNames];
}

/** Variables with the same prefix that are not settings: those of the CLI, the SDK and deploy/. */
const otherVariables = /^FORKD_(URL|TOKEN|CA|COMMAND|DEMO_TAG|RUN_[A-Z_]+)$/;

/** Variables that look like settings but are not, usually because they are misspelt. */
export async function strayVariables(env: Environment): Promise<string[]> {
  const { settingNames: names, variableOf } = await import("@forkd/daemon");
  const known = new Set(names.map(variableOf));
  return Object.keys(env).filter(
    (name) => name.startsWith("FORKD_") && !known.has(name) && !otherVariables.test(name),
  );
}

/** Throws invalid_request if a daemon would not start with these settings. */
export async function localSettings(env: Environment): Promise<{ file: string; settings: SettingInfo[] }> {
  const daemon = await import("@forkd/daemon");
  const config = await daemon.loadConfig({}, env);
  return { file: daemon.configFileOf({}, env), settings: daemon.describeSettings(config, env) };
}

export async function setSettings(given: readonly (readonly [string, string])[], env: Environment) {
  return (await import("@forkd/daemon")).setSettings(given, env);
}

export async function unsetSettings(names: readonly string[], env: Environment) {
  return (await import("@forkd/daemon")).unsetSettings(names, env);
}

export async function requireSetting(name: string): Promise<string> {
  return (await import("@forkd/daemon")).requireSetting(name);
}

/** Checks a host on which no daemon runs. */
export async function inspectHost(env: Environment, options: { boot: boolean }): Promise<DoctorReport> {
  return (await import("@forkd/daemon")).inspectHost(env, options);
}

/** Applies the safe repairs that the checks found; a daemon may be running. */
export async function fixHost(
  env: Environment,
  options: { boot: boolean; isRunning: boolean },
): Promise<Fixed[]> {
  return (await import("@forkd/daemon")).fixHost(env, options);
}
