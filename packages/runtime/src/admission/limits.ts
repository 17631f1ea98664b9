/**
 * Limits of one sandbox: which of them this host can hold it to, and by what.
 *
 *   memory, cpu, pids   a control group of the machine, which its VMM enters before the guest's first instruction
 *   io, disk            the engine, at the guest's disk
 *   net                 the egress proxy, through which all traffic of a machine passes
 *
 * Each machine has its own group, `<sandbox id>-<number>`: a sandbox that is rewound has two machines
 * for a moment.
 */
import {
  AppError,
  limitNames,
  type AskedLimits,
  type LimitName,
  type NotEnforced,
  type WithLimits,
} from "@forkd/contract";
import type {
  Cgroups,
  DiskLimits,
  Engine,
  ExitReason,
  Group,
  GroupLimits,
  PreparedMachine,
} from "@forkd/machine";
import type { QuotaSettings } from "../config.ts";
import type { Network } from "../network/network.ts";
import type { EndReason } from "../sandbox/exit-reason.ts";

const mib = 1024 * 1024;

/** What can hold a machine to a limit. */
type Enforcers = {
  readonly cgroups: Cgroups;
  readonly engine: Pick<Engine, "name" | "capabilities">;
  readonly network: Pick<Network, "device" | "note">;
};

/** What was asked for, and where that says nothing the daemon's defaults; undefined if nothing is limited. */
export function limitsOf(
  { quota }: { readonly quota: QuotaSettings },
  { limits, memory_limit_mib: older }: WithLimits,
  inherited?: AskedLimits,
): AskedLimits | undefined {
  const { defaultLimits } = quota;
  const given = { ...inherited, ...limits, ...(older !== undefined && { memory_mib: older }) };
  const merged: AskedLimits = { best_effort: false, ...onlySet(defaultLimits), ...onlySet(given) };
  return limitNames.some((name) => merged[name] !== undefined) ? merged : undefined;
}

function onlySet<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

/** Why the host cannot hold a machine to a limit, or undefined if it can. */
function obstacle({ cgroups, engine, network }: Enforcers, limit: LimitName): string | undefined {
  const byGroup = { memory_mib: "memory", cpu_percent: "cpu", pids: "pids" } as const;
  if (limit in byGroup) {
    const support = cgroups.support[byGroup[limit as keyof typeof byGroup]];
    return "reason" in support ? support.reason : undefined;
  }
  if (limit.startsWith("net_"))
    return network.device === "none" ? `sandboxes have no network on this host: ${network.note}` : undefined;
  return engine.capabilities.diskLimits ? undefined : `the engine ${engine.name} cannot limit disks`;
}

/** Of all limits that there are. */
export function notEnforceable(enforcers: Enforcers, limits: AskedLimits | undefined): NotEnforced[] {
  if (!limits) return [];
  return limitNames
    .filter((limit) => limits[limit] !== undefined)
    .flatMap((limit) => {
      const reason = obstacle(enforcers, limit);
      return reason === undefined ? [] : [{ limit, reason }];
    });
}

/** Refuses what could be promised but not held. */
export function requireEnforceable(enforcers: Enforcers, limits: AskedLimits | undefined): void {
  const problems = notEnforceable(enforcers, limits);
  if (problems.length === 0 || limits?.best_effort) return;
  const list = problems.map(({ limit, reason }) => `limits.${limit}: ${reason}`).join("; ");
  throw new AppError("limit_not_enforceable", `Cannot hold a sandbox to ${list}`, {
    details: { limits_not_enforced: problems },
    remedy: { action: "allow_best_effort" },
  });
}

export function groupName(id: string, number: number): string {
  return `${id}-${number}`;
}

type Machine = Pick<PreparedMachine, "process" | "limitDisk">;

/** The machine's group, still empty; undefined if it needs none. */
export function makeGroup(
  enforcers: Enforcers,
  { id, number }: { id: string; number: number },
  limits: AskedLimits | undefined,
): Group | undefined {
  const missing = new Set(notEnforceable(enforcers, limits).map(({ limit }) => limit));
  const held = <N extends LimitName>(name: N) => (missing.has(name) ? undefined : limits?.[name]);
  const wanted: GroupLimits = {
    memoryMib: held("memory_mib"),
    cpuPercent: held("cpu_percent"),
    pids: held("pids"),
  };
  if (Object.values(wanted).every((value) => value === undefined)) return undefined;
  return enforcers.cgroups.create(groupName(id, number), wanted);
}

/** Before code of its user runs. `usedBytes` is what its disk took before this machine began. */
export async function holdToLimits(
  machine: Machine,
  group: Group | undefined,
  limits: AskedLimits | undefined,
  usedBytes = 0,
): Promise<void> {
  group?.add(machine.process.pid);
  const disk = diskLimits(limits, usedBytes);
  if (disk) await machine.limitDisk?.(disk);
}

export function diskLimits(limits: AskedLimits | undefined, usedBytes: number): DiskLimits | undefined {
  if (!limits) return undefined;
  const { io_read_bps, io_write_bps, io_read_iops, io_write_iops, disk_mib } = limits;
  const disk: DiskLimits = {
    readBps: io_read_bps,
    writeBps: io_write_bps,
    readIops: io_read_iops,
    writeIops: io_write_iops,
    growth:
      disk_mib === undefined
        ? undefined
        : {
            bytes: Math.max(0, disk_mib * mib - usedBytes),
            reason: `disk limit reached: its disk took more than ${disk_mib} MiB on the host`,
          },
  };
  return Object.values(disk).some((value) => value !== undefined) ? disk : undefined;
}

/** Why a VMM ended, where its limits say more than its exit does. */
export function diagnose(
  group: Group | undefined,
  limits: AskedLimits | undefined,
  guestMib?: number,
): (exit: Pick<ExitReason, "signal" | "exitCode"> & Partial<ExitReason>) => EndReason | undefined {
  const guest = guestMib === undefined ? "" : ` (guest has ${guestMib} MiB)`;
  return ({ signal, exitCode, text, exceeded }) => {
    if (exceeded === "disk" && text !== undefined) return { text, code: "disk_limit" };
    // The exit status is known only of VMMs that are children of this process.
    const isUnknown = signal === null && exitCode === null;
    if (signal !== "SIGKILL" && !isUnknown) return undefined;
    const kill = group?.oomKill();
    if (kill === "limit")
      return { text: `out of memory: limit ${limits?.memory_mib} MiB${guest}`, code: "out_of_memory" };
    if (kill === "host")
      return {
        text: "the host is out of memory: its kernel chose this machine",
        code: "host_out_of_memory",
      };
    return undefined;
  };
}
