/** The runtime itself: what it holds, whether the host is fit, what can be cleaned up. */
import { access, constants, statfs } from "node:fs/promises";
import { freemem, totalmem } from "node:os";
import type { Check, CleanupReport, DoctorReport, Status } from "@forkd/contract";
import { missingPrograms } from "@forkd/image";
import { kvmObstacle } from "@forkd/machine";
import { agentPath } from "../config.ts";
import type { Runtime } from "../open-runtime.ts";
import { limitsCheck } from "../limits-check.ts";
import { findStrays, removeStrays } from "../reap.ts";
import { removeGroups, strayGroups } from "../stray-groups.ts";
import { forkdVersion } from "../version.ts";

const gib = 1024 ** 3;

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

export async function doctor(runtime: Runtime): Promise<DoctorReport> {
  const { config, accelerator } = runtime;
  const checks: Check[] = [
    check(
      "platform",
      process.platform === "linux" && process.arch === "x64",
      `${process.platform} ${process.arch}`,
      "forkd needs Linux on x86_64",
    ),
    { name: "daemon", outcome: "ok", detail: `version ${forkdVersion}, pid ${process.pid}` },
    {
      name: "engine",
      outcome: "ok",
      detail: `${runtime.engine.name} ${runtime.engine.version} (${config.qemuPath})`,
    },
    await acceleratorCheck(runtime),
    await readable("guest agent", agentPath(config), "run make -C guest"),
    ...(await buildTools()),
    await diskSpace(config.dataDir),
    memory(),
    limitsCheck(runtime),
    { name: "directories", outcome: "ok", detail: `data ${config.dataDir}, sockets ${config.runtimeDir}` },
  ];
  return {
    ok: checks.every(({ outcome }) => outcome !== "fail"),
    accelerator: accelerator.accelerator,
    checks,
  };
}

function check(name: string, ok: boolean, detail: string, remedy: string): Check {
  return ok ? { name, outcome: "ok", detail } : { name, outcome: "fail", detail, remedy };
}

async function acceleratorCheck({ accelerator }: Runtime): Promise<Check> {
  const detail = `${accelerator.accelerator}: ${accelerator.reason}`;
  if (accelerator.accelerator === "kvm") {
    const obstacle = await kvmObstacle();
    if (obstacle !== undefined)
      return {
        name: "accelerator",
        outcome: "warn",
        detail: `${detail}, but ${obstacle}`,
        remedy: "set FORKD_ACCELERATOR=auto",
      };
    return { name: "accelerator", outcome: "ok", detail };
  }
  return {
    name: "accelerator",
    outcome: "warn",
    detail,
    remedy: "guests run, slower; use a host with kvm_intel or kvm_amd for full speed",
  };
}

async function readable(name: string, path: string, remedy: string): Promise<Check> {
  try {
    await access(path, constants.X_OK);
    return { name, outcome: "ok", detail: path };
  } catch {
    return { name, outcome: "fail", detail: `${path} is missing`, remedy };
  }
}

async function buildTools(): Promise<Check[]> {
  const missing = await missingPrograms();
  if (missing.length === 0) return [{ name: "build tools", outcome: "ok", detail: "all present" }];
  return missing.map(({ program, remedy }) => ({
    name: "build tools",
    outcome: "warn" as const,
    detail: `${program} is missing: recipes cannot be built`,
    remedy,
  }));
}

async function diskSpace(dir: string): Promise<Check> {
  const { bavail, bsize } = await statfs(dir);
  const free = bavail * bsize;
  const detail = `${(free / gib).toFixed(1)} GiB free at ${dir}`;
  if (free > 5 * gib) return { name: "disk space", outcome: "ok", detail };
  return {
    name: "disk space",
    outcome: free > gib ? "warn" : "fail",
    detail,
    remedy: "free some space or set FORKD_DATA_DIR",
  };
}

function memory(): Check {
  const detail = `${(freemem() / gib).toFixed(1)} of ${(totalmem() / gib).toFixed(1)} GiB free`;
  if (freemem() > gib) return { name: "memory", outcome: "ok", detail };
  return { name: "memory", outcome: "warn", detail, remedy: "kill sandboxes that are not needed" };
}

/** Directories and processes of sandboxes that are not in the registry or the pool. */
export async function cleanup(
  runtime: Runtime,
  { dry_run: dryRun }: { dry_run: boolean },
): Promise<CleanupReport> {
  const strays = await findStrays(runtime.config, (id) => runtime.owns(id));
  const groups = strayGroups(runtime.cgroups, (id) => runtime.owns(id));
  if (!dryRun) {
    await removeStrays(runtime.config, strays);
    await removeGroups(runtime.cgroups, groups);
  }
  const removed = [...strays, ...groups.map((name) => ({ kind: "group", name, detail: "control group" }))];
  return { removed, dry_run: dryRun };
}
