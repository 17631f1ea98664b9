/**
 * The manifest of a snapshot: everything that a restore depends on. Format: docs/spec/manifest.md.
 *
 * It is written last, so a directory that has one is complete. File names are fixed and relative, so the
 * directory can be moved. The sha256 of its bytes is the snapshot's id, by which a layer names its parent.
 */
import { z } from "zod";
import {
  acceleratorSchema,
  languageSchema,
  networkModeSchema,
  requireSchema,
  ruleTextSchema,
  tagPattern,
} from "@forkd/contract";

export const manifestVersion = 2;
export const manifestName = "manifest.json";
const maxDisks = 64;

const hexDigest = z.string().regex(/^[0-9a-f]{64}$/);
const fileSchema = z.strictObject({
  /** logical length */
  bytes: z.int().min(0),
  /** chunked digest, see digest.ts */
  digest: hexDigest,
});
/** Longest file of an attachment. They are read as a whole. */
export const maxAttachmentBytes = 64 << 20;
const attachmentSchema = fileSchema.extend({ bytes: z.int().min(0).max(maxAttachmentBytes) });
const layerSchema = z.strictObject({
  bytes: z.int().min(0),
  /** index digest, see layer-format.ts */
  digest: hexDigest,
  pages: z.int().min(0),
});

export const fileNames = {
  memory: "memory",
  layer: "layer",
  devices: "devices",
  rootfs: "rootfs.ext4",
  sbom: "sbom.spdx.json",
  recipe: "recipe.tar",
} as const;
export type FileRole = keyof typeof fileNames;

/** Files that describe a snapshot and that no restore reads. Branches and copies inherit them. */
export const attachmentRoles = ["sbom", "recipe"] as const satisfies FileRole[];
export type AttachmentRole = (typeof attachmentRoles)[number];

/** Disk layers are numbered from the bottom. */
export function diskName(index: number): string {
  return `disk-${index}.qcow2`;
}

const kernelPositionSchema = z.strictObject({
  language: languageSchema,
  /** text of the kernel's ready message */
  version: z.string().max(256),
  argv: z.array(z.string()).min(1),
  process_id: z.int().min(1),
  /** bytes that streams 1, 2 and 3 had carried at the time of the snapshot */
  offsets: z.tuple([z.int().min(0), z.int().min(0), z.int().min(0)]),
  next_id: z.int().min(1),
  /** ids of messages that the kernel had not answered yet; empty when idle */
  unanswered: z.array(z.int().min(1)),
  /** the eval among them */
  running: z.strictObject({ id: z.int().min(1), context: z.string().max(64) }).optional(),
});

const tagSchema = z.string().regex(tagPattern);

const originSchema = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("build") }),
  z.strictObject({
    kind: z.literal("branch"),
    /** id of the branched sandbox */
    sandbox: z.string(),
    mode: z.enum(["full", "diff", "live"]),
    /** how long the guest was paused */
    pause_ms: z.number().min(0),
  }),
  z.strictObject({ kind: z.literal("compact"), of: tagSchema }),
]);
export type Origin = z.output<typeof originSchema>;

export const manifestSchema = z
  .strictObject({
    version: z.literal(manifestVersion),
    forkd_version: z.string(),
    created_at_unix: z.number(),
    origin: originSchema,
    /** the snapshot to whose memory the layer applies */
    parent: z.strictObject({ tag: tagSchema, id: hexDigest }).optional(),
    agent_protocol: z.int(),
    engine: z.strictObject({ name: z.string(), version: z.string() }),
    machine: z.strictObject({
      type: z.string(),
      cpu: z.string(),
      accelerator: acceleratorSchema,
      vcpus: z.int().min(1),
      memory_mib: z.int().min(1),
      devices: z.array(z.string()),
      /** TSC frequency that the guest uses; 0 if it uses another clock */
      tsc_khz: z.int().min(0),
      /** whether the device state has a section of QEMU's own network stack */
      slirp: z.literal(true).optional(),
    }),
    kernel: z.strictObject({ digest: z.string(), version: z.string(), command_line: z.string() }),
    initramfs: z.strictObject({ digest: z.string() }),
    rootfs: z.strictObject({ digest: z.string() }),
    recipe: z.strictObject({ name: z.string(), digest: z.string() }).optional(),
    /** container image that the root file system was made from */
    image: z
      .strictObject({
        /** as the build named it */
        reference: z.string(),
        /** of its manifest, or of its config if it was saved without one */
        digest: z.string(),
        entrypoint: z.array(z.string()),
        cmd: z.array(z.string()),
        ports: z.array(z.string()),
        volumes: z.array(z.string()),
        labels: z.record(z.string(), z.string()),
      })
      .optional(),
    env: z.record(z.string(), z.string()),
    /** where and as whom commands run that do not say it; absent: in the home of root */
    defaults: z.strictObject({ cwd: z.string().optional(), user: z.string().optional() }).optional(),
    /** network of its children, unless a fork asks for another */
    network: z
      .strictObject({
        mode: networkModeSchema.optional(),
        rules: z.array(ruleTextSchema).optional(),
        ceilings: z
          .array(z.strictObject({ mode: networkModeSchema, rules: z.array(ruleTextSchema) }))
          .optional(),
      })
      .optional(),
    /** hazards of a fork whose checks must have passed before it is forked */
    require: requireSchema.optional(),
    /** of a branch or copy: id of the built snapshot whose checks count for it, too */
    verified_as: hexDigest.optional(),
    /** whether the agent had read complete messages only and all of them; absent if it was idle */
    agent_at_boundary: z.boolean().optional(),
    kernels: z.array(kernelPositionSchema),
    files: z.strictObject({
      memory: fileSchema.optional(),
      layer: layerSchema.optional(),
      devices: fileSchema,
      disks: z.array(fileSchema).min(1).max(maxDisks),
      rootfs: fileSchema,
      /** packages that the build found in the guest, as SPDX */
      sbom: attachmentSchema.optional(),
      /** the recipe that it was built from, as a tar archive */
      recipe: attachmentSchema.optional(),
    }),
  })
  .refine(({ files }) => (files.memory === undefined) !== (files.layer === undefined), {
    path: ["files"],
    message: "there must be either memory or a layer",
  })
  .refine(({ files, parent }) => (files.layer === undefined) === (parent === undefined), {
    path: ["parent"],
    message: "a layer needs a parent, and only a layer may have one",
  })
  .refine(
    ({ files, machine }) => (files.memory?.bytes ?? machine.memory_mib * mib) === machine.memory_mib * mib,
    {
      path: ["files", "memory"],
      message: "its length must be the memory size of the machine",
    },
  );
export type Manifest = z.output<typeof manifestSchema>;
/** The part that the creator of a snapshot provides; seal() adds the files. */
export type ManifestFacts = Omit<Manifest, "files" | "version">;

const mib = 1 << 20;

/** Length of the flat memory image. */
export function memoryBytes(manifest: Pick<Manifest, "machine">): number {
  return manifest.machine.memory_mib * mib;
}
