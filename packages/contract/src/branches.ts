/** Branch, pause, resume and rewind: saving a sandbox, and returning to saved state. */
import { z } from "zod";
import { envSchema, inSandbox, labelsSchema, sandboxIdSchema, sandboxPath, tagSchema } from "./ids.ts";
import { givenOnce, isGivenOnce, lifetimeFields, limitFields } from "./limits.ts";
import { networkFields } from "./network.ts";
import { contentBodyBytes, route } from "./route.ts";
import { forkResultSchema, sandboxSchema, variationSchema } from "./sandboxes.ts";
import { branchModeSchema, snapshotSchema } from "./snapshots.ts";

const legacy = (mode: string) =>
  z
    .boolean()
    .optional()
    .meta({ description: `Accepted for compatibility; the same as mode "${mode}"` });

const branchRequestSchema = z
  .strictObject({
    id: sandboxIdSchema,
    /** default: made from the id of the sandbox and the time */
    tag: tagSchema.optional(),
    mode: branchModeSchema.optional().meta({
      description:
        "live (default): pages are copied to memory and written while the source runs again; diff: written while the source is paused, needs no memory; full: as live, stored without a parent",
    }),
    /** false: answer once the source runs again; the snapshot is `writing` until it is `ready` or `failed` */
    wait: z.boolean().default(true),
    /** children to fork from the new snapshot in the same call */
    n: z.int().min(0, "must be 0 to 1000").max(1000, "must be 0 to 1000").default(0),
    vary: z.array(variationSchema).max(1000).default([]),
    env: envSchema.default({}),
    labels: labelsSchema.default({}),
    ...lifetimeFields,
    /** default: the limits of the sandbox itself */
    ...limitFields,
    /** default: the network of the sandbox itself */
    ...networkFields,
    /** refused unless it is the snapshot that the sandbox runs from */
    parent_tag: tagSchema.optional(),
    diff: legacy("diff"),
    live: legacy("live"),
    measure_diff: z
      .boolean()
      .optional()
      .meta({ description: "Accepted for compatibility; sizes are always reported" }),
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

const branchResultSchema = snapshotSchema.extend({
  branched_from: sandboxIdSchema,
  mode: branchModeSchema,
  pause_ms: z.number(),
  /** time that the guest itself lost, by its clock; absent if the guest did not answer at once */
  stall_ms: z.number().optional(),
  /** from the request until the source ran again */
  resumed_ms: z.number(),
  /** from the request until the snapshot was written; absent before */
  total_ms: z.number().optional(),
  /** memory that differed from the memory of the parent */
  diff_logical_bytes: z.number(),
  /** size of the layer on disk; absent while it is being written, and for mode full */
  diff_physical_bytes: z.number().optional(),
  /** parts of the pause */
  timings_ms: z.record(z.string(), z.number()),
  /** in the order of the request */
  children: forkResultSchema,
});
export type BranchResult = z.output<typeof branchResultSchema>;

const rewindRequestSchema = z.strictObject({
  id: sandboxIdSchema,
  /** an ancestor of the sandbox, or a branch of it */
  to: tagSchema,
});

export const branchRoutes = {
  branch: route({
    method: "post",
    path: `${sandboxPath}/branch`,
    summary: "Snapshot a running sandbox, which keeps running. With n, fork children from the snapshot",
    status: 201,
    pendingStatus: 202,
    kind: "json",
    scope: "run",
    maxBodyBytes: contentBodyBytes,
    idempotencyKey: "honoured",
    input: branchRequestSchema,
    output: branchResultSchema,
  }),
  pause: route({
    method: "post",
    path: `${sandboxPath}/pause`,
    summary: "Save a sandbox to disk and stop its machine; the id stays",
    status: 200,
    kind: "json",
    scope: "run",
    input: inSandbox,
    output: sandboxSchema,
  }),
  resume: route({
    method: "post",
    path: `${sandboxPath}/resume`,
    summary: "Resume a paused sandbox",
    status: 200,
    kind: "json",
    scope: "run",
    input: inSandbox,
    output: sandboxSchema,
  }),
  rewind: route({
    method: "post",
    path: `${sandboxPath}/rewind`,
    summary: "Return a sandbox in place to a snapshot of its lineage",
    status: 200,
    kind: "json",
    scope: "run",
    input: rewindRequestSchema,
    output: sandboxSchema,
  }),
} as const;
