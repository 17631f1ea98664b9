/** Snapshots: how they are made, what a caller sees, their lineage, and removal of what nothing uses. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { envSchema, languageSchema, sandboxIdSchema, tagSchema } from "./ids.ts";
import { pageFields } from "./lists.ts";
import { queryFlag, route } from "./route.ts";
import { acceleratorSchema, sandboxStateSchema } from "./sandboxes.ts";
import { requireSchema, verificationSchema } from "./verify.ts";
import { workspaceNameSchema } from "./workspaces.ts";

/** MiB; measured with Debian's kernel: 72 are too few */
export const guestMemorySchema = z
  .int()
  .min(80, "must be at least 80: a guest with less memory does not boot")
  .max(65536);

export const snapshotStatusSchema = z.enum(["writing", "ready", "failed"]);
export const branchModeSchema = z.enum(["full", "diff", "live"]);
export type BranchMode = z.output<typeof branchModeSchema>;

export const snapshotSchema = z.object({
  tag: tagSchema,
  /** directory on the daemon's host */
  dir: z.string(),
  created_at_unix: z.number(),
  /** `writing`: a branch that is not completely on disk yet; its source runs again */
  status: snapshotStatusSchema,
  /** false if this host would refuse to restore it; `warning` says why */
  bootable: z.boolean(),
  warning: z.string().optional(),
  memory_mib: z.number(),
  vcpus: z.number(),
  accelerator: acceleratorSchema,
  languages: z.array(z.string()),
  recipe: z.string().optional(),
  /** container image that its root file system was made from, as the build named it */
  image: z.string().optional(),
  /** its own files on disk, without files that it shares by hard links */
  physical_bytes: z.number(),
  /** what removing it would free: its own files and its flat image */
  own_bytes: z.number(),
  /** everything that it takes on disk: its own files, its flat image, and the files that it shares */
  total_bytes: z.number(),
  /** snapshot whose memory it is a layer over */
  parent_tag: tagSchema.optional(),
  /** sandbox that it was branched from, or `compact:TAG` */
  branched_from: z.string().optional(),
  mode: branchModeSchema.optional(),
  /** how long the CPUs of the source were stopped */
  pause_ms: z.number().optional(),
});
export type SnapshotInfo = z.output<typeof snapshotSchema>;

const snapshotDetailSchema = snapshotSchema.extend({
  memory_logical_bytes: z.number(),
  memory_physical_bytes: z.number(),
  vmstate_bytes: z.number(),
  disk_bytes: z.number(),
  /** as long as the guest sees it */
  rootfs_bytes: z.number(),
  /** what the root file system takes on disk; snapshots and images can share it */
  rootfs_physical_bytes: z.number(),
  /** digest of its manifest, which names the digests of all its files */
  id: z.string(),
  /** 0 = its memory has no parent */
  chain_depth: z.number(),
  /** parents, nearest first */
  ancestors: z.array(tagSchema),
  /** snapshots and paused sandboxes that are layers over it */
  dependents: z.array(z.string()),
  /** bytes of the memory layer; 0 where memory is flat */
  layer_bytes: z.number(),
  /** size of the flat image that children map, if it is made from layers; 0 = not in the cache */
  flat_cache_bytes: z.number(),
  parent_content_hash: z.string().optional(),
  /** live sandboxes forked from it */
  sandboxes: z.array(z.string()),
  /** what the container image says that it was made from */
  image_config: z
    .object({
      digest: z.string(),
      entrypoint: z.array(z.string()),
      cmd: z.array(z.string()),
      /** default directory of commands */
      workdir: z.string().optional(),
      /** default user of commands; absent: root */
      user: z.string().optional(),
      ports: z.array(z.string()),
      volumes: z.array(z.string()),
      labels: z.record(z.string(), z.string()),
    })
    .optional(),
  /** hazards without whose check it is not forked */
  require: requireSchema.optional(),
  /** last result of a check of its children */
  verification: verificationSchema.optional(),
  manifest: z.record(z.string(), z.unknown()),
});
export type SnapshotDetail = z.output<typeof snapshotDetailSchema>;

const hostPath = z.string().min(1).max(4096).regex(/^\//, "must be an absolute path on the daemon's host");

const imageRule = "must be a name in a registry, or oci:PATH or docker-archive:PATH with an absolute path";
const isAbsoluteImage = (image: string): boolean => !/^(oci|oci-archive|docker-archive):(?!\/)/.test(image);

/** A recipe, a container image, or a root file system (and perhaps a kernel) of the user. */
export const createSnapshotSchema = z
  .strictObject({
    tag: tagSchema,
    /** recipe directory, or its recipe.json */
    recipe: hostPath.optional(),
    /** ext4 image, tar archive (also .gz, .xz, .zst) or directory */
    rootfs: hostPath.optional(),
    /** container image: a name in a registry, `oci:PATH[:TAG]` or `docker-archive:PATH[:NAME:TAG]` */
    image: z.string().min(1).max(4096).refine(isAbsoluteImage, imageRule).optional(),
    /** start ENTRYPOINT and CMD of the image as a service, perhaps until a port of it accepts */
    start: z.strictObject({ ready_port: z.int().min(1).max(65_535).optional() }).optional(),
    /** Linux kernel image; default: Debian's cloud kernel */
    kernel: hostPath.optional(),
    /** directory with that kernel's modules; default: drivers must be built in */
    modules: hostPath.optional(),
    memory_mib: guestMemorySchema.optional(),
    vcpus: z.int().min(1).max(64).optional(),
    disk_mib: z.int().min(16).max(1_048_576).optional(),
    env: envSchema.optional(),
    /** commands to run in the parent before the snapshot */
    run: z.array(z.array(z.string()).min(1)).max(256).optional(),
    languages: z
      .partialRecord(
        languageSchema,
        z.strictObject({ warmup: z.string().default(""), rehearse: z.string().max(65_536).optional() }),
      )
      .optional(),
    /** replace a snapshot that has this tag */
    force: z.boolean().default(false),
    /** make the root file system, and the steps of the recipe, again, with the current packages */
    no_cache: z.boolean().optional(),
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
  .refine(
    ({ recipe, rootfs, image }) => [recipe, rootfs, image].filter((each) => each !== undefined).length === 1,
    {
      path: ["recipe"],
      message: "give one of recipe, image and rootfs",
    },
  )
  .refine((request) => request.start === undefined || request.image !== undefined, {
    path: ["start"],
    message: "is for images; a recipe names its services",
  })
  .refine((request) => !request.no_cache || request.rootfs === undefined, {
    path: ["no_cache"],
    message: "is for recipes and images; a root file system is read again whenever it has changed",
  });
export type CreateSnapshotRequest = z.output<typeof createSnapshotSchema>;

/** One line of the stream that a build writes. */
export const buildEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("progress"), step: z.string(), message: z.string(), elapsed_ms: z.number() }),
  /** a step has ended; `message` is its last progress */
  z.object({ type: z.literal("step"), step: z.string(), message: z.string(), duration_ms: z.number() }),
  z.object({ type: z.literal("snapshot"), snapshot: snapshotSchema }),
  errorEventSchema,
]);
export type BuildEvent = z.output<typeof buildEventSchema>;

const removedSnapshotsSchema = z.object({
  /** in the order of removal: layers before what they are over */
  removed: z.array(z.object({ tag: tagSchema })),
  /** of all of them together, including files that only they share */
  freed_bytes: z.number(),
  dry_run: z.boolean(),
});
export type RemovedSnapshots = z.output<typeof removedSnapshotsSchema>;

const treeSchema = z.object({
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

const gcRequestSchema = z.strictObject({
  dry_run: z.boolean().default(false),
  /** also remove branches that nothing depends on or runs from; implied by the two below */
  branches: z.boolean().optional(),
  /** also remove images that no snapshot and no build uses; the next build of their recipe makes them again */
  images: z.boolean().optional(),
  /** only branches older than this */
  older_than_secs: z.int().min(0).max(3_153_600_000).optional(),
  /** keep this many of the newest branches */
  keep_last: z.int().min(0).max(1_000_000).optional(),
});
export type GcRequest = z.output<typeof gcRequestSchema>;
const gcSchema = z.object({
  removed: z.array(
    z.object({
      /**
       * memory: a flat image that no machine maps; failed: a snapshot that was never finished; snapshot: a
       * branch that the request selects; image: a root file system, kernel or initramfs; blobs: compressed
       * parts of snapshots; pull: what an interrupted pull has fetched, if it was not continued for a day;
       * others: as in cleanup
       */
      kind: z.enum([
        "memory",
        "failed",
        "snapshot",
        "image",
        "blobs",
        "pull",
        "process",
        "directory",
        "group",
      ]),
      name: z.string(),
      bytes: z.number(),
      /** of an image: the recipe, file or version that it was made from */
      source: z.string().optional(),
    }),
  ),
  freed_bytes: z.number(),
  /** unused images that stay because the request does not select images */
  kept_image_bytes: z.number().optional(),
  dry_run: z.boolean(),
});
export type GcReport = z.output<typeof gcSchema>;

export const snapshotRoutes = {
  listSnapshots: route({
    method: "get",
    path: "/v1/snapshots",
    summary: "List snapshots, ordered by tag",
    status: 200,
    kind: "json",
    scope: "read",
    paged: true,
    input: z.strictObject({
      ...pageFields,
      tag: tagSchema.optional(),
      state: snapshotStatusSchema.optional(),
      parent: tagSchema.optional().meta({ description: "Only direct layers over this snapshot" }),
      branched_from: sandboxIdSchema.optional(),
    }),
    output: z.array(snapshotSchema),
  }),
  createSnapshot: route({
    method: "post",
    path: "/v1/snapshots",
    summary: "Build a snapshot from a recipe, an image or a root file system; answers with lines of progress",
    status: 201,
    kind: "events",
    // It reads any path of the host that the daemon can read, its token among them.
    scope: "admin",
    idempotencyKey: {
      refused: "the tag makes it safe to repeat: a second build is refused with snapshot_exists",
    },
    input: createSnapshotSchema,
    output: buildEventSchema,
  }),
  snapshotInfo: route({
    method: "get",
    path: "/v1/snapshots/{tag}/info",
    summary: "Everything about a snapshot",
    status: 200,
    kind: "json",
    scope: "read",
    // It reads every byte of the snapshot.
    inputScopes: { verify: "run" },
    input: z.strictObject({ tag: tagSchema, verify: queryFlag.optional() }),
    output: snapshotDetailSchema,
  }),
  snapshotSbom: route({
    method: "get",
    path: "/v1/snapshots/{tag}/sbom",
    summary: "Packages that the build of a snapshot found in the guest, as an SPDX 2.3 document",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({ tag: tagSchema }),
    output: z.record(z.string(), z.unknown()),
  }),
  removeSnapshot: route({
    method: "delete",
    path: "/v1/snapshots/{tag}",
    summary: "Remove a snapshot; answers with everything that was removed",
    status: 200,
    kind: "json",
    scope: "run",
    inputScopes: { force: "admin" },
    input: z
      .strictObject({
        tag: tagSchema,
        /** also the snapshots that are layers over it */
        cascade: queryFlag.optional(),
        /** even if something depends on it: its sandboxes keep running, layers over it become unusable */
        force: queryFlag.optional(),
        /** only report what would be removed */
        dry_run: queryFlag.optional(),
      })
      .refine((request) => !(request.cascade && request.force), {
        path: ["cascade"],
        message: "cascade and force exclude each other",
      }),
    output: removedSnapshotsSchema,
  }),
} as const;

export const lineageRoutes = {
  compact: route({
    method: "post",
    path: "/v1/snapshots/{tag}/compact",
    summary: "Copy a snapshot into one without a parent",
    status: 200,
    kind: "json",
    scope: "run",
    input: z.strictObject({ tag: tagSchema, to: tagSchema }),
    output: snapshotSchema,
  }),
  tree: route({
    method: "get",
    path: "/v1/tree",
    summary: "Lineage of snapshots and sandboxes",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: treeSchema,
  }),
  gc: route({
    method: "post",
    path: "/v1/gc",
    summary:
      "Remove what nothing uses: flat images that no machine maps, unfinished snapshots, leftovers, images",
    status: 200,
    kind: "json",
    scope: "admin",
    input: gcRequestSchema,
    output: gcSchema,
  }),
} as const;
