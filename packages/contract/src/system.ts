/** The daemon itself and its host. */
import { z } from "zod";
import { queryFlag, route } from "./route.ts";
import { acceleratorSchema } from "./sandboxes.ts";

const healthSchema = z.object({ ok: z.boolean() });
export const versionSchema = z.object({ version: z.string(), api: z.literal("v1"), pid: z.number() });

const checkSchema = z.object({
  name: z.string(),
  outcome: z.enum(["ok", "warn", "fail"]),
  detail: z.string(),
  remedy: z.string().optional(),
  /** the remedy as data, where it is more than advice */
  remedy_data: z.looseObject({ action: z.string() }).optional(),
});
export type Check = z.output<typeof checkSchema>;

const doctorSchema = z.object({
  ok: z.boolean(),
  accelerator: acceleratorSchema,
  /** null: no daemon runs */
  daemon: z.object({ pid: z.number(), version: z.string() }).nullable().optional(),
  checks: z.array(checkSchema),
});
export type DoctorReport = z.output<typeof doctorSchema>;

const auditStatusSchema = z.object({
  /** false while lines cannot be written */
  ok: z.boolean(),
  /** lines dropped since the daemon started, because the queue was full */
  dropped: z.number(),
  /** why writing fails at the moment */
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
  /** bytes on disk of root file systems, kernels and initramfs that no snapshot shares; at most a minute old */
  image_cache_bytes: z.number().optional(),
  /** children that wait ready to be handed out, by tag */
  pool: z.record(z.string(), z.number()),
  /** absent if auditing is off */
  audit: auditStatusSchema.optional(),
});
export type Status = z.output<typeof statusSchema>;

const cleanupSchema = z.object({
  /** what was (or, on a dry run, would be) removed */
  removed: z.array(z.object({ kind: z.string(), name: z.string(), detail: z.string() })),
  dry_run: z.boolean(),
});
export type CleanupReport = z.output<typeof cleanupSchema>;

const unsavedSchema = z.object({ id: z.string(), name: z.string(), error: z.string() });
const shutdownSchema = z.object({
  /** machines that were stopped */
  stopped: z.number(),
  /** machines that keep running for the next daemon */
  kept: z.number(),
  /** names of the workspaces that were saved; absent if there were none */
  saved: z.array(z.string()).optional(),
  /** workspaces that keep running because they could not be saved */
  unsaved: z.array(unsavedSchema).optional(),
  /** workspaces that were stopped by force without being saved */
  lost: z.array(unsavedSchema).optional(),
});
export type ShutdownResult = z.output<typeof shutdownSchema>;

export const systemRoutes = {
  health: route({
    method: "get",
    path: "/healthz",
    summary: "Liveness; needs no token",
    status: 200,
    kind: "json",
    scope: "open",
    audit: "none",
    log: "debug",
    input: z.strictObject({}),
    output: healthSchema,
  }),
  version: route({
    method: "get",
    path: "/version",
    summary: "Version of the daemon",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: versionSchema,
  }),
  status: route({
    method: "get",
    path: "/v1/status",
    summary: "State of the daemon",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: statusSchema,
  }),
  doctor: route({
    method: "get",
    path: "/v1/doctor",
    summary: "Check the host; with boot=true also start a small guest on each accelerator",
    status: 200,
    kind: "json",
    scope: "read",
    // It starts processes that no limit counts.
    inputScopes: { boot: "admin" },
    input: z.strictObject({ boot: queryFlag.optional() }),
    output: doctorSchema,
  }),
  cleanup: route({
    method: "post",
    path: "/v1/cleanup",
    summary: "Remove leftovers that nothing uses",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ dry_run: z.boolean().default(false) }),
    output: cleanupSchema,
  }),
  shutdown: route({
    method: "post",
    path: "/v1/shutdown",
    summary: "Stop the daemon; running sandboxes are kept for the next daemon or stopped",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({
      /** default: the setting on_stop */
      sandboxes: z.enum(["keep", "stop"]).optional(),
      /** with stop: also stop workspaces that cannot be saved */
      force: z.boolean().optional(),
    }),
    output: shutdownSchema,
  }),
} as const;
