/** Snapshots: how they are made and what a caller sees. */
import { z } from "zod";
import { errorBodySchema } from "./error-body.ts";
import { envSchema, languageSchema, tagSchema } from "./ids.ts";
import { acceleratorSchema } from "./sandbox.ts";

export const snapshotStatusSchema = z.enum(["writing", "ready", "failed"]);
export const branchModeSchema = z.enum(["full", "diff", "live"]);
export type BranchMode = z.output<typeof branchModeSchema>;

export const snapshotSchema = z.object({
  tag: tagSchema,
  /** directory on the daemon's host */
  dir: z.string(),
  created_at_unix: z.number(),
  /** `writing`: a branch whose source runs again but whose bytes are not all on disk yet */
  status: snapshotStatusSchema,
  /** false when a restore on this host would be refused; `warning` says why */
  bootable: z.boolean(),
  warning: z.string().optional(),
  memory_mib: z.number(),
  vcpus: z.number(),
  accelerator: acceleratorSchema,
  languages: z.array(z.string()),
  recipe: z.string().optional(),
  /** bytes on disk that are its own (what it shares with others by hard links left out) */
  physical_bytes: z.number(),
  /** snapshot whose memory it is a layer over */
  parent_tag: tagSchema.optional(),
  /** sandbox that it was branched from, or `compact:TAG` */
  branched_from: z.string().optional(),
  mode: branchModeSchema.optional(),
  /** how long the source stood still, from the stop of its CPUs to their start */
  pause_ms: z.number().optional(),
});
export type SnapshotInfo = z.output<typeof snapshotSchema>;

export const snapshotDetailSchema = snapshotSchema.extend({
  memory_logical_bytes: z.number(),
  memory_physical_bytes: z.number(),
  vmstate_bytes: z.number(),
  disk_bytes: z.number(),
  rootfs_bytes: z.number(),
  /** digest of its manifest, which names the digests of all its files */
  id: z.string(),
  /** 0 = its memory stands alone */
  chain_depth: z.number(),
  /** parents, nearest first */
  ancestors: z.array(tagSchema),
  /** snapshots and paused sandboxes that are layers over it */
  dependents: z.array(z.string()),
  /** bytes of the memory layer; 0 where memory is flat */
  layer_bytes: z.number(),
  /** bytes of the flat image that children map, where it is made from layers; 0 = not made at the moment */
  flat_cache_bytes: z.number(),
  parent_content_hash: z.string().optional(),
  /** live sandboxes forked from it */
  sandboxes: z.array(z.string()),
  manifest: z.record(z.string(), z.unknown()),
});
export type SnapshotDetail = z.output<typeof snapshotDetailSchema>;

const hostPath = z.string().min(1).max(4096).regex(/^\//, "must be an absolute path on the daemon's host");

/** Either a recipe, or a root file system (and perhaps a kernel) that the user brings. */
export const createSnapshotSchema = z
  .strictObject({
    tag: tagSchema,
    /** recipe directory */
    recipe: hostPath.optional(),
    /** ext4 image, tar archive (also .gz, .xz, .zst) or directory */
    rootfs: hostPath.optional(),
    /** Linux kernel image; default: Debian's cloud kernel */
    kernel: hostPath.optional(),
    /** directory with that kernel's modules; default: drivers must be built in */
    modules: hostPath.optional(),
    memory_mib: z.int().min(64).max(65536).optional(),
    vcpus: z.int().min(1).max(64).optional(),
    disk_mib: z.int().min(16).max(1_048_576).optional(),
    env: envSchema.optional(),
    /** commands run in the parent before the snapshot is taken */
    run: z.array(z.array(z.string()).min(1)).max(256).optional(),
    languages: z.partialRecord(languageSchema, z.strictObject({ warmup: z.string().default("") })).optional(),
    /** replace a snapshot that has this tag */
    force: z.boolean().default(false),
    boot_wait_secs: z
      .int()
      .min(1)
      .max(600)
      .optional()
      .meta({ description: "Longest wait for the agent; the snapshot is taken as soon as it answers" }),
    rw: z
      .boolean()
      .optional()
      .meta({ description: "Accepted for compatibility; every child has a private writable disk" }),
    tap: z.undefined({ error: "tap is not supported: leave it out" }).optional(),
  })
  .refine((request) => (request.recipe === undefined) !== (request.rootfs === undefined), {
    path: ["recipe"],
    message: "give either recipe or rootfs",
  });
export type CreateSnapshotRequest = z.output<typeof createSnapshotSchema>;

/** One line of the stream that a build writes. */
export const buildEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("progress"), step: z.string(), message: z.string(), elapsed_ms: z.number() }),
  z.object({ type: z.literal("snapshot"), snapshot: snapshotSchema }),
  z.object({ type: z.literal("error"), ...errorBodySchema.shape }),
]);
export type BuildEvent = z.output<typeof buildEventSchema>;
