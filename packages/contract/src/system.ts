/** The daemon itself and its host. */
import { z } from "zod";
import { acceleratorSchema } from "./sandbox.ts";

export const healthSchema = z.object({ ok: z.boolean() });
export const versionSchema = z.object({ version: z.string(), api: z.literal("v1"), pid: z.number() });

export const checkSchema = z.object({
  name: z.string(),
  outcome: z.enum(["ok", "warn", "fail"]),
  detail: z.string(),
  remedy: z.string().optional(),
  /** the remedy as data, where it is more than advice */
  remedy_data: z.looseObject({ action: z.string() }).optional(),
});
export type Check = z.output<typeof checkSchema>;

export const doctorSchema = z.object({
  ok: z.boolean(),
  accelerator: acceleratorSchema,
  /** null: none runs */
  daemon: z.object({ pid: z.number(), version: z.string() }).nullable().optional(),
  checks: z.array(checkSchema),
});
export type DoctorReport = z.output<typeof doctorSchema>;

export const auditStatusSchema = z.object({
  /** false while lines cannot be written */
  ok: z.boolean(),
  /** lines lost since the daemon started, because the queue was full */
  dropped: z.number(),
  /** why the last write failed, while it does */
  error: z.string().optional(),
});
export type AuditStatus = z.output<typeof auditStatusSchema>;

export const statusSchema = z.object({
  version: z.string(),
  pid: z.number(),
  data_dir: z.string(),
  runtime_dir: z.string(),
  accelerator: acceleratorSchema,
  uptime_secs: z.number(),
  rss_bytes: z.number(),
  sandboxes: z.number(),
  snapshots: z.number(),
  /** VMM processes started ahead, by tag */
  pool: z.record(z.string(), z.number()),
  /** absent if it is off */
  audit: auditStatusSchema.optional(),
});
export type Status = z.output<typeof statusSchema>;

export const cleanupSchema = z.object({
  /** what was (or, on a dry run, would be) removed */
  removed: z.array(z.object({ kind: z.string(), name: z.string(), detail: z.string() })),
  dry_run: z.boolean(),
});
export type CleanupReport = z.output<typeof cleanupSchema>;
