/** Checks the host and what earlier daemons left. */
import type { Check, DoctorReport } from "@forkd/contract";
import { ok, toCheck, warn, type Finding } from "../doctor/finding.ts";
import { acceleratorFindings, commonFindings } from "../doctor/findings.ts";
import { limitsCheck } from "../doctor/limits.ts";
import { findLeftovers } from "../recovery/leftovers.ts";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";

/** With `boot` it starts a small guest on each accelerator. */
export async function doctor(
  runtime: Runtime,
  { boot = false }: { boot?: boolean } = {},
): Promise<DoctorReport> {
  const { config, accelerator, places } = runtime;
  const found = [
    ...(await commonFindings(config)),
    await leftoverFinding(runtime),
    ...(await socketFindings(runtime)),
    ...(await (boot ? runtime.guestBoots.fresh(0) : acceleratorFindings({ config, places }, false))),
  ];
  const checks: Check[] = [
    { name: "daemon", outcome: "ok", detail: `version ${forkdVersion}, pid ${process.pid}` },
    acceleratorCheck(runtime, found),
    limitsCheck(runtime),
    ...found.map(toCheck),
  ];
  return {
    ok: checks.every(({ outcome }) => outcome !== "fail"),
    accelerator: accelerator.accelerator,
    daemon: { pid: process.pid, version: forkdVersion },
    checks,
  };
}

/** Warns only if the check of KVM does not: one reason is one warning. */
export function acceleratorCheck(
  { accelerator, config }: Pick<Runtime, "accelerator" | "config">,
  found: readonly Finding[],
): Check {
  const detail = `${accelerator.accelerator}: ${accelerator.reason}`;
  const mayUseKvm = found.some(({ name, outcome }) => name === "kvm" && outcome === "ok");
  if (accelerator.accelerator === "kvm" || config.accelerator === "tcg" || !mayUseKvm)
    return { name: "accelerator", outcome: "ok", detail };
  return {
    name: "accelerator",
    outcome: "warn",
    detail,
    remedy: "Restart the daemon to try KVM again.",
  };
}

async function leftoverFinding(runtime: Pick<Runtime, "cgroups" | "config" | "places">): Promise<Finding> {
  const { strays, groups } = await findLeftovers(runtime);
  const found = [
    ...strays.map(({ kind, name }) => `${kind} ${name}`),
    ...groups.map((name) => `group ${name}`),
  ];
  if (found.length === 0) return ok("leftovers", "none");
  const names = found.slice(0, 3);
  return warn("leftovers", `${found.length}, such as ${names.join(", ")}`, { action: "clean_up" });
}

/** A machine whose sockets were removed works until the daemon stops; the next one could not adopt it. */
async function socketFindings({
  engine,
  registry,
}: Pick<Runtime, "engine" | "registry">): Promise<Finding[]> {
  const lost: string[] = [];
  for (const sandbox of registry.all()) {
    const machine = sandbox.machineAtWork;
    if (machine && !(await engine.canAttach(machine.paths))) lost.push(sandbox.id);
  }
  if (lost.length === 0) return [];
  const more = lost.length > 3 ? ` and ${lost.length - 3} more` : "";
  return [
    warn(
      "sandbox sockets",
      `the sockets of ${lost.slice(0, 3).join(", ")}${more} were removed from the runtime directory; the next daemon cannot adopt them`,
      { action: "pause_and_resume", ids: lost.slice(0, 3) },
    ),
  ];
}
