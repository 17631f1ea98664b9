/** The doctor without a daemon, and its fixes. */
import { toAppError, type DoctorReport } from "@forkd/contract";
import { fail, idleFindings, ok, runtimeConfig, toCheck, type Finding } from "@forkd/runtime";
import { loadConfig, type Config, type Environment } from "../settings/load.ts";
import { placeFindings } from "./findings.ts";

type InspectOptions = {
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

/**
 * Runs the fixes of the findings one after the other. A fix that fails is reported and does not stop the
 * rest.
 */
export async function fixHost(
  env: Environment,
  options: InspectOptions & { readonly isRunning: boolean },
): Promise<Fixed[]> {
  const fixed: Fixed[] = [];
  // No guest is started to find faults; the fix of "boot" runs only on request.
  for (const { name, fix } of await findingsOf(env, false, options.isRunning)) {
    if (fix === undefined || (name === "boot" && !options.boot)) continue;
    const done = await fix().catch((error: unknown) => `could not be fixed: ${toAppError(error).message}`);
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
    ...(await idleFindings(runtimeConfig(config.values), boot)),
    ...(await placeFindings(config.values, isRunning)),
  ];
}
