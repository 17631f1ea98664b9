/** What one sandbox may use of the host, and its timeouts. */
import { z } from "zod";

const atLeast = (min: number, max: number, unit: string) =>
  z.int().min(min, `must be at least ${min} ${unit}`).max(max, `must be at most ${max} ${unit}`);
const bytesPerSecond = atLeast(4096, 1e12, "bytes per second").optional();
const operationsPerSecond = atLeast(1, 1e9, "operations per second").optional();

const shape = {
  /** memory of the VMM on the host; pages that the guest has never written are shared and hardly count */
  memory_mib: atLeast(32, 1 << 24, "MiB").optional(),
  /** CPU time in percent of one core: 50 is half a core, 200 two cores */
  cpu_percent: atLeast(1, 1_000_000, "percent of one core").optional(),
  /** threads of the VMM on the host; processes in the guest are not limited */
  pids: atLeast(16, 1 << 22, "threads").optional(),
  io_read_bps: bytesPerSecond,
  io_write_bps: bytesPerSecond,
  io_read_iops: operationsPerSecond,
  io_write_iops: operationsPerSecond,
  /** size of its disk on the host beyond its snapshot; a sandbox that exceeds it is stopped */
  disk_mib: atLeast(8, 1 << 24, "MiB").optional(),
  /** network, in each direction */
  net_bps: bytesPerSecond,
  /** network in both directions together, over the life of one machine; then nothing more passes */
  net_bytes: atLeast(4096, 1e15, "bytes").optional(),
  /** network connections at the same time */
  net_connections: atLeast(1, 65_536, "connections").optional(),
};

export const limitsSchema = z.strictObject(shape);
export type Limits = z.output<typeof limitsSchema>;
export type LimitName = keyof Limits;
export const limitNames = Object.keys(shape) as LimitName[];

export const askedLimitsSchema = z
  .strictObject({
    ...shape,
    /** fork even if the host cannot enforce all limits; `limits_not_enforced` names them */
    best_effort: z.boolean().default(false),
  })
  .meta({ description: "What each sandbox may use of the host" });
export type AskedLimits = z.output<typeof askedLimitsSchema>;

export const notEnforcedSchema = z.object({
  limit: z.enum(limitNames as [LimitName, ...LimitName[]]),
  reason: z.string(),
});
export type NotEnforced = z.output<typeof notEnforcedSchema>;

const seconds = z.int().min(1).max(31_536_000);
export const onTimeoutSchema = z
  .enum(["kill", "pause"])
  .meta({ description: "What happens when a time to live or an idle timeout is over" });
export type OnTimeout = z.output<typeof onTimeoutSchema>;

/** Fields of every request that makes sandboxes. */
export const lifetimeFields = {
  /** the sandbox is killed (or paused) when this many seconds have passed */
  ttl_secs: seconds.optional(),
  /** … or after this many seconds without a call into it (command, eval, file); an open stream is a call */
  idle_timeout_secs: seconds.optional(),
  on_timeout: onTimeoutSchema.optional(),
  /** a call into the paused sandbox resumes it first */
  auto_resume: z.boolean().optional(),
};
export const limitFields = {
  limits: askedLimitsSchema.optional(),
  memory_limit_mib: shape.memory_mib.meta({
    description: "Accepted for compatibility; the same as limits.memory_mib",
  }),
};

export type WithLimits = {
  limits?: AskedLimits | undefined;
  memory_limit_mib?: number | undefined;
};

export const givenOnce = {
  path: ["memory_limit_mib"],
  message: "give the limit once: either here or as limits.memory_mib",
};
export function isGivenOnce({ limits, memory_limit_mib: older }: WithLimits): boolean {
  return older === undefined || limits?.memory_mib === undefined || limits.memory_mib === older;
}

/** `null` removes a time; absent fields stay as they are. */
export const timeoutsSchema = z.strictObject({
  ttl_secs: seconds.nullable().optional(),
  idle_timeout_secs: seconds.nullable().optional(),
  on_timeout: onTimeoutSchema.optional(),
  auto_resume: z.boolean().optional(),
});
