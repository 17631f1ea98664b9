/** BRANCH, pause, resume, rewind, and what is made of them: workspaces, lineage, collection of what nothing needs. */
import { z } from "zod";
import { envSchema, labelsSchema, sandboxIdSchema, tagSchema } from "./ids.ts";
import { givenOnce, isGivenOnce, lifetimeFields, limitFields } from "./limits.ts";
import { forkResultSchema, sandboxStateSchema, variationSchema } from "./sandboxes.ts";
import { branchModeSchema, snapshotSchema, snapshotStatusSchema } from "./snapshots.ts";

const legacy = (mode: string) =>
  z
    .boolean()
    .optional()
    .meta({ description: `Accepted for compatibility; the same as mode "${mode}"` });

export const branchRequestSchema = z
  .strictObject({
    id: sandboxIdSchema,
    /** default: made from the sandbox and the time */
    tag: tagSchema.optional(),
    mode: branchModeSchema.optional().meta({
      description:
        "live (default): pages are taken into memory and written once the source runs again; diff: written while it is paused, needs no memory; full: as live, stored without a parent",
    }),
    /** false: answer as soon as the source runs again; the snapshot is `writing` until it is `ready` or `failed` */
    wait: z.boolean().default(true),
    /** children to fork from the new snapshot in the same call */
    n: z.int().min(0, "must be 0 to 1000").max(1000, "must be 0 to 1000").default(0),
    vary: z.array(variationSchema).max(1000).default([]),
    env: envSchema.default({}),
    labels: labelsSchema.default({}),
    ...lifetimeFields,
    /** default: those of the sandbox itself */
    ...limitFields,
    /** refused unless it is the snapshot that the sandbox runs from */
    parent_tag: tagSchema.optional(),
    diff: legacy("diff"),
    live: legacy("live"),
    measure_diff: z
      .boolean()
      .optional()
      .meta({ description: "Accepted for compatibility; sizes are always told" }),
  })
  .refine((request) => request.vary.length <= request.n, {
    path: ["vary"],
    message: "must not have more entries than n",
  })
  .refine(isGivenOnce, givenOnce)
  .refine((request) => request.wait || request.n === 0, {
    path: ["n"],
    message:
      "children can be forked only from a snapshot that is ready: leave out wait: false, or fork later",
  })
  .refine(
    (request) =>
      [request.mode !== undefined, request.diff === true, request.live === true].filter(Boolean).length <= 1,
    { path: ["mode"], message: "give one mode: either mode, or one of the older diff and live" },
  );
export type BranchRequest = z.output<typeof branchRequestSchema>;

export const branchResultSchema = snapshotSchema.extend({
  branched_from: sandboxIdSchema,
  mode: branchModeSchema,
  pause_ms: z.number(),
  /** how far the guest's clock lagged afterwards: what the guest itself lost; absent if it did not answer at once */
  stall_ms: z.number().optional(),
  /** from the request to the moment when the source ran again */
  resumed_ms: z.number(),
  /** from the request to the end of the capture's writing; absent while it is written */
  total_ms: z.number().optional(),
  /** memory that differed from the parent's */
  diff_logical_bytes: z.number(),
  /** bytes that the layer takes on disk; absent while it is written, and for mode full */
  diff_physical_bytes: z.number().optional(),
  /** parts of the pause */
  timings_ms: z.record(z.string(), z.number()),
  /** in the order of asking */
  children: forkResultSchema,
});
export type BranchResult = z.output<typeof branchResultSchema>;

export const rewindRequestSchema = z.strictObject({
  id: sandboxIdSchema,
  /** an ancestor of the sandbox, or a branch that was taken of it */
  to: tagSchema,
});

export const workspaceNameSchema = tagSchema.meta({ description: "Name of a workspace" });

/** `stale`: its machine was lost before it was ever suspended; resume starts it anew from its snapshot */
export const workspaceStatusSchema = z.enum(["running", "suspended", "stale", "dead"]);

export const workspaceSchema = z.object({
  /** of its sandbox, which it keeps for life */
  id: sandboxIdSchema,
  name: workspaceNameSchema,
  source_snapshot_tag: tagSchema,
  status: workspaceStatusSchema,
  live_sandbox_id: sandboxIdSchema.optional(),
  created_at_unix: z.number(),
  last_active_unix: z.number(),
});
export type WorkspaceInfo = z.output<typeof workspaceSchema>;

export const createWorkspaceSchema = z
  .strictObject({
    name: workspaceNameSchema,
    snapshot_tag: tagSchema,
    env: envSchema.default({}),
    labels: labelsSchema.default({}),
    ...lifetimeFields,
    ...limitFields,
  })
  .refine(isGivenOnce, givenOnce);

export const treeSchema = z.object({
  snapshots: z.array(
    z.object({
      tag: tagSchema,
      status: snapshotStatusSchema,
      parent_tag: tagSchema.optional(),
      branched_from: z.string().optional(),
      created_at_unix: z.number(),
      physical_bytes: z.number(),
    }),
  ),
  sandboxes: z.array(
    z.object({
      id: sandboxIdSchema,
      state: sandboxStateSchema,
      /** snapshot that it descends from */
      snapshot_tag: tagSchema,
      workspace: workspaceNameSchema.optional(),
      created_at_unix: z.number(),
    }),
  ),
});
export type Tree = z.output<typeof treeSchema>;

export const gcRequestSchema = z.strictObject({
  dry_run: z.boolean().default(false),
  /** also remove branches that nothing depends on or runs from; implied by the two below */
  branches: z.boolean().optional(),
  /** only branches made longer ago than this */
  older_than_secs: z.int().min(0).max(3_153_600_000).optional(),
  /** but not the newest of all branches */
  keep_last: z.int().min(0).max(1_000_000).optional(),
});
export type GcRequest = z.output<typeof gcRequestSchema>;
export const gcSchema = z.object({
  removed: z.array(
    z.object({
      /** memory: a flat image that no machine maps; failed: a snapshot that was never finished; snapshot: a branch that was asked for; others: as in cleanup */
      kind: z.enum(["memory", "failed", "snapshot", "process", "directory", "group"]),
      name: z.string(),
      bytes: z.number(),
    }),
  ),
  freed_bytes: z.number(),
  dry_run: z.boolean(),
});
export type GcReport = z.output<typeof gcSchema>;
