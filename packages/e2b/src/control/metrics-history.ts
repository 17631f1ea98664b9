/**
 * Usage of sandboxes over time. A measurement is made when a client asks, at most one a second, and kept: a
 * client that asks again gets the history of its own questions. Without questions nothing is measured.
 */
import { LruMap } from "@forkd/base";
import { exec, stats, type Context, type Runtime } from "@forkd/runtime";
import type { SandboxInfo, SandboxStats } from "@forkd/contract";
import { isoOf } from "./describe.ts";

const keptSamples = 720;
const keptSandboxes = 1000;
const freshSecs = 1;
const lookSecs = 5;

export type Sample = {
  readonly timestamp: string;
  readonly timestampUnix: number;
  readonly cpuCount: number;
  readonly cpuUsedPct: number;
  readonly memUsed: number;
  readonly memTotal: number;
  readonly memCache: number;
  readonly diskUsed: number;
  readonly diskTotal: number;
};
type Taken = { readonly sample: Sample; readonly pid: number | undefined; readonly cpuSeconds: number };

export class MetricsHistory {
  readonly #kept = new LruMap<string, Taken[]>(keptSandboxes);

  /** With a measurement of now, if it runs. */
  async of(runtime: Runtime, info: SandboxInfo, context: Context): Promise<readonly Sample[]> {
    const known = this.#kept.get(info.id) ?? [];
    const last = known.at(-1);
    const isFresh = last && Date.now() / 1000 - last.sample.timestampUnix < freshSecs;
    if (info.state === "running" && !isFresh) {
      const taken = await measure(runtime, info, { last, context });
      if (taken) known.push(taken);
      if (known.length > keptSamples) known.shift();
      this.#kept.set(info.id, known);
    }
    return known.map(({ sample }) => sample);
  }
}

type Measuring = { readonly last: Taken | undefined; readonly context: Context };

async function measure(runtime: Runtime, info: SandboxInfo, about: Measuring): Promise<Taken | undefined> {
  const all = await stats(runtime, {});
  const usage = all.sandboxes.find(({ id }) => id === info.id);
  if (usage === undefined) return undefined;
  const guest = await lookInside(runtime, info, about.context);
  const unix = usage.sampled_at_unix;
  return {
    pid: usage.pid,
    cpuSeconds: usage.cpu_seconds ?? 0,
    sample: {
      timestamp: isoOf(unix),
      timestampUnix: Math.floor(unix),
      cpuCount: info.vcpus,
      cpuUsedPct: cpuShare(usage, info, about.last),
      memTotal: guest.memTotal ?? info.memory_mib * 1024 * 1024,
      memUsed: guest.memUsed ?? usage.private_bytes ?? 0,
      memCache: guest.memCache ?? 0,
      diskUsed: guest.diskUsed ?? usage.disk_bytes,
      diskTotal: guest.diskTotal ?? usage.disk_bytes,
    },
  };
}

/** In percent of all its CPUs, since the measurement before, or since the start. */
function cpuShare(
  usage: SandboxStats,
  { vcpus, created_at_unix }: SandboxInfo,
  last: Taken | undefined,
): number {
  const isSame = last !== undefined && last.pid === usage.pid;
  const seconds = usage.sampled_at_unix - (isSame ? last.sample.timestampUnix : created_at_unix);
  const used = (usage.cpu_seconds ?? 0) - (isSame ? last.cpuSeconds : 0);
  if (seconds <= 0 || used <= 0) return 0;
  return Math.round(Math.min(100, (used / seconds / vcpus) * 100) * 100) / 100;
}

type Inside = Partial<Record<"memTotal" | "memUsed" | "memCache" | "diskUsed" | "diskTotal", number>>;

/** What the guest says of itself; nothing if it does not answer. */
async function lookInside(runtime: Runtime, { id }: SandboxInfo, context: Context): Promise<Inside> {
  const args = ["/bin/sh", "-c", "cat /proc/meminfo; df -Pk /"];
  const request = {
    id,
    args,
    env: {},
    timeout_secs: lookSecs,
    stdin_open: false,
    stream: false,
    background: false,
  };
  const result = await exec(runtime, request, context).catch(() => undefined);
  return result ? insideOf(result.stdout) : {};
}

/** The guest may write anything; what is not a number is left out. */
export function insideOf(text: string): Inside {
  const kib = (pattern: RegExp) => {
    const value = Number(pattern.exec(text)?.[1] ?? NaN) * 1024;
    return Number.isSafeInteger(value) ? value : undefined;
  };
  const total = kib(/^MemTotal:\s+(\d{1,12}) kB$/m);
  const available = kib(/^MemAvailable:\s+(\d{1,12}) kB$/m);
  const cached = kib(/^Cached:\s+(\d{1,12}) kB$/m);
  const diskTotal = kib(/^\S+\s+(\d{1,12})\s+\d{1,12}\s+\d{1,12}\s+\S+\s+\/$/m);
  const diskUsed = kib(/^\S+\s+\d{1,12}\s+(\d{1,12})\s+\d{1,12}\s+\S+\s+\/$/m);
  return {
    ...(total !== undefined && { memTotal: total }),
    ...(total !== undefined && available !== undefined && { memUsed: Math.max(0, total - available) }),
    ...(cached !== undefined && { memCache: cached }),
    ...(diskTotal !== undefined && { diskTotal }),
    ...(diskUsed !== undefined && { diskUsed }),
  };
}
