/** The runtime itself: what it holds, whether the host is fit, what can be cleaned up. */
import type { Check, CleanupReport, DoctorReport, Status } from "@forkd/contract";
import { acceleratorFindings, commonFindings } from "../doctor/findings.ts";
import { ok, toCheck, warn, type Finding } from "../doctor/finding.ts";
import type { Runtime } from "../runtime.ts";
import { findStrays, removeStrays, type Claim } from "../recovery/strays.ts";
import { limitsCheck } from "../doctor/limits.ts";
import { removeGroups, strayGroups } from "../recovery/stray-groups.ts";
import { forkdVersion } from "../version.ts";

export async function status(runtime: Runtime): Promise<Status> {
  return {
    version: forkdVersion,
    pid: process.pid,
    data_dir: runtime.config.dataDir,
    runtime_dir: runtime.config.runtimeDir,
    accelerator: runtime.accelerator.accelerator,
    uptime_secs: Math.round((Date.now() - runtime.startedAt) / 1000),
    rss_bytes: process.memoryUsage.rss(),
    sandboxes: runtime.registry.live,
    snapshots: (await runtime.store.list()).length,
    pool: runtime.pool.counts(),
  };
}

/** With `boot` a small guest is started on each accelerator. */
export async function doctor(
  runtime: Runtime,
  { boot = false }: { boot?: boolean } = {},
): Promise<DoctorReport> {
  const { config, accelerator, places } = runtime;
  const checks: Check[] = [
    { name: "daemon", outcome: "ok", detail: `version ${forkdVersion}, pid ${process.pid}` },
    acceleratorCheck(runtime),
    limitsCheck(runtime),
    ...[
      ...(await commonFindings(config)),
      await leftoverFinding(runtime),
      ...(await (boot ? runtime.guestBoots.fresh(0) : acceleratorFindings({ config, places }, false))),
    ].map(toCheck),
  ];
  return {
    ok: checks.every(({ outcome }) => outcome !== "fail"),
    accelerator: accelerator.accelerator,
    daemon: { pid: process.pid, version: forkdVersion },
    checks,
  };
}

function acceleratorCheck({ accelerator }: Runtime): Check {
  const detail = `${accelerator.accelerator}: ${accelerator.reason}`;
  if (accelerator.accelerator === "kvm") return { name: "accelerator", outcome: "ok", detail };
  return {
    name: "accelerator",
    outcome: "warn",
    detail,
    remedy: "Use a host with kvm_intel or kvm_amd for full speed.",
  };
}

async function leftoverFinding(runtime: Runtime): Promise<Finding> {
  const { removed } = await cleanup(runtime, { dry_run: true });
  if (removed.length === 0) return ok("leftovers", "none");
  const names = removed.slice(0, 3).map(({ kind, name }) => `${kind} ${name}`);
  return warn("leftovers", `${removed.length}, such as ${names.join(", ")}`, { action: "clean_up" });
}

/** Sandbox directories that are not in the registry or the pool. */
export function unclaimed(runtime: Runtime): (id: string) => Claim | undefined {
  return (id) => (runtime.owns(id) ? undefined : { hasRecord: false });
}

/** Directories and processes of sandboxes that are not in the registry or the pool. */
export async function cleanup(
  runtime: Runtime,
  { dry_run: dryRun }: { dry_run: boolean },
): Promise<CleanupReport> {
  const strays = await findStrays(runtime.config, unclaimed(runtime));
  const groups = strayGroups(runtime.cgroups, (id) => runtime.owns(id));
  if (!dryRun) {
    await removeStrays(runtime.config, strays);
    await removeGroups(runtime.cgroups, groups);
  }
  const removed = [...strays, ...groups.map((name) => ({ kind: "group", name, detail: "control group" }))];
  return { removed, dry_run: dryRun };
}
