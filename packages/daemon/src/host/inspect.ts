/** The doctor without a daemon, and the mending of what it finds. */
import { toAppError, type DoctorReport } from "@forkd/contract";
import { fail, idleFindings, ok, toCheck, type Finding } from "@forkd/runtime";
import { loadConfig, type Config, type Environment } from "../settings/config.ts";
import { runtimeConfig } from "../serve.ts";
import { placeFindings } from "./findings.ts";

export type InspectOptions = {
  /** start a small guest on each accelerator */
  readonly boot: boolean;
};

export async function inspectHost(env: Environment, { boot }: InspectOptions): Promise<DoctorReport> {
  const checks = (await findingsOf(env, boot)).map(toCheck);
  const kvm = checks.some(({ name, outcome }) => name === "kvm" && outcome === "ok");
  return {
    ok: checks.every(({ outcome }) => outcome !== "fail"),
    accelerator: kvm ? "kvm" : "tcg",
    daemon: null,
    checks,
  };
}

export type Fixed = { readonly name: string; readonly done: string };

/** Does what the findings offer, one after the other; what fails is told as such and does not end the rest. */
export async function fixHost(
  env: Environment,
  options: InspectOptions & { readonly isRunning: boolean },
): Promise<Fixed[]> {
  const fixed: Fixed[] = [];
  // Nothing is started for it; what a boot needs is made only for whoever wants one.
  for (const { name, fix } of await findingsOf(env, false, options.isRunning)) {
    if (fix === undefined || (name === "boot" && !options.boot)) continue;
    const done = await fix().catch((error: unknown) => `could not be mended: ${toAppError(error).message}`);
    fixed.push({ name, done });
  }
  return fixed;
}

async function findingsOf(env: Environment, boot: boolean, isRunning = false): Promise<Finding[]> {
  let config: Config;
  try {
    config = await loadConfig({}, env);
  } catch (error) {
    return [
      fail(
        "settings",
        toAppError(error).message,
        "Run `forkd config check`, then `forkd config set NAME VALUE`.",
      ),
    ];
  }
  return [
    ok("settings", "valid"),
    ...(await idleFindings(runtimeConfig(config), boot)),
    ...(await placeFindings(config.values, isRunning)),
  ];
}
