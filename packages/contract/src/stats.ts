/** What sandboxes use of the host, and metrics of the daemon. */
import { z } from "zod";
import { sandboxIdSchema, tagSchema } from "./ids.ts";
import { labelFilterSchema } from "./lists.ts";
import { route } from "./route.ts";
import { sandboxStateSchema } from "./sandboxes.ts";

const statsRequestSchema = z.strictObject({
  tag: tagSchema.optional(),
  label: labelFilterSchema.optional(),
  state: sandboxStateSchema.optional(),
});

const sandboxStatsSchema = z.object({
  id: sandboxIdSchema,
  snapshot_tag: tagSchema,
  state: sandboxStateSchema,
  workspace: z.string().optional(),
  owner: z.string().optional(),
  /** process id of the VMM; without one, CPU and memory are absent too */
  pid: z.number().optional(),
  /** since it was forked */
  uptime_secs: z.number(),
  /** of all its vCPUs and its VMM, since the VMM started */
  cpu_seconds: z.number().optional(),
  private_bytes: z.number().optional(),
  /** mapped by others too: the snapshot's memory, mostly */
  shared_bytes: z.number().optional(),
  /** private bytes and its share of shared bytes */
  pss_bytes: z.number().optional(),
  /** its own files on disk */
  disk_bytes: z.number(),
  /** when this was measured; two measurements give a rate */
  sampled_at_unix: z.number(),
});
export type SandboxStats = z.output<typeof sandboxStatsSchema>;

export const statsSchema = z.object({
  sampled_at_unix: z.number(),
  sandboxes: z.array(sandboxStatsSchema),
});
export type Stats = z.output<typeof statsSchema>;

export const statsRoutes = {
  stats: route({
    method: "get",
    path: "/v1/stats",
    summary: "CPU, memory and disk of the sandboxes",
    status: 200,
    kind: "json",
    scope: "read",
    repeatable: ["label"],
    input: statsRequestSchema,
    output: statsSchema,
  }),
  metrics: route({
    method: "get",
    path: "/metrics",
    summary: "Metrics for Prometheus, text format 0.0.4",
    status: 200,
    kind: "text",
    scope: "read",
    audit: "none",
    input: z.strictObject({}),
    output: z.string(),
  }),
} as const;
