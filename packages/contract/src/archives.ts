/** Snapshots as one file that can be unpacked on another host. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { tagSchema } from "./ids.ts";
import { noAnswer, queryFlag, route } from "./route.ts";
import { snapshotSchema } from "./snapshots.ts";

export const archiveLevels = { least: 1, most: 19, default: 7 } as const;
export const levelSchema = z
  .int()
  .min(archiveLevels.least)
  .max(archiveLevels.most)
  .meta({ description: "Level of zstd: 1 is the fastest, 19 gives the smallest archive" });

const packedSchema = z.object({
  tag: tagSchema,
  id: z.string(),
  /** of the OCI manifest, which names everything in the archive; it does not depend on the tag */
  digest: z.string(),
  level: z.number(),
  /** length of the archive */
  archive_bytes: z.number(),
  /** lengths of the files of the snapshot and of its parents, holes included */
  file_bytes: z.number(),
  /** snapshots in the archive: the snapshot and its parents */
  snapshots: z.number(),
});
export type PackedArchive = z.output<typeof packedSchema>;

/** One line of the stream that packing writes. */
export const packEventSchema = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("progress"),
    /** verify: files are compared with their digests; pack: they are compressed */
    phase: z.enum(["verify", "pack"]),
    /** of `pack`: bytes of the files; of `verify`: snapshots */
    done: z.number(),
    total: z.number(),
    elapsed_ms: z.number(),
  }),
  z.object({ type: z.literal("packed"), packed: packedSchema }),
  errorEventSchema,
]);
export type PackEvent = z.output<typeof packEventSchema>;

const unpackedSchema = z.object({
  snapshot: snapshotSchema,
  /** the snapshot and its parents, from the bottom of the chain */
  chain: z.array(
    z.object({
      tag: tagSchema,
      id: z.string(),
      /** the same snapshot was here already */
      existed: z.boolean(),
      /** the tag by which the archive names it, if another snapshot has it here */
      instead_of: tagSchema.optional(),
    }),
  ),
});
export type UnpackedArchive = z.output<typeof unpackedSchema>;

export const archiveRoutes = {
  packSnapshot: route({
    method: "post",
    path: "/v1/snapshots/{tag}/pack",
    summary: "Prepare the archive of a snapshot; answers with lines of progress",
    status: 200,
    kind: "events",
    scope: "run",
    input: z.strictObject({ tag: tagSchema, level: levelSchema.default(archiveLevels.default) }),
    output: packEventSchema,
  }),
  snapshotArchive: route({
    method: "get",
    path: "/v1/snapshots/{tag}/archive",
    summary: "Download the archive of a snapshot and its parents",
    status: 200,
    kind: "bytes",
    scope: "run",
    input: z.strictObject({
      tag: tagSchema,
      level: z.coerce.number().pipe(levelSchema).default(archiveLevels.default),
    }),
    output: noAnswer,
  }),
  unpackSnapshot: route({
    method: "put",
    path: "/v1/snapshots/archive",
    summary: "Make the snapshots of an archive",
    status: 201,
    kind: "upload",
    // A restore hands its device state to the VMM.
    scope: "admin",
    input: z.strictObject({
      tag: tagSchema.optional().meta({ description: "Default: the tag under which it was packed" }),
      /** replace another snapshot that has the tag */
      force: queryFlag.optional(),
    }),
    output: unpackedSchema,
  }),
} as const;
