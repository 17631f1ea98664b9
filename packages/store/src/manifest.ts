/**
 * The manifest of a snapshot: everything that a restore depends on. Format: docs/spec/manifest.md.
 *
 * It is written last, so a directory that has one is complete. File names are fixed and relative, so the directory can be
 * moved or renamed.
 */
import { z } from "zod";
import { acceleratorSchema, languageSchema } from "@forkd/contract";

export const manifestVersion = 1;
export const manifestName = "manifest.json";

const fileSchema = z.strictObject({
  /** logical length */
  bytes: z.int().min(0),
  /** chunked digest, see digest.ts */
  digest: z.string().regex(/^[0-9a-f]{64}$/),
});

export const fileNames = {
  memory: "memory",
  devices: "devices",
  disk: "disk.qcow2",
  rootfs: "rootfs.ext4",
} as const;
export type FileRole = keyof typeof fileNames;

export const kernelPositionSchema = z.strictObject({
  language: languageSchema,
  /** text of the kernel's ready message */
  version: z.string().max(256),
  argv: z.array(z.string()).min(1),
  process_id: z.int().min(1),
  /** bytes that streams 1, 2, 3 had carried when the snapshot was taken */
  offsets: z.tuple([z.int().min(0), z.int().min(0), z.int().min(0)]),
  next_id: z.int().min(1),
  /** messages that the kernel had still to answer; empty at rest */
  unanswered: z.array(z.int().min(1)),
});

export const manifestSchema = z.strictObject({
  version: z.literal(manifestVersion),
  forkd_version: z.string(),
  created_at_unix: z.number(),
  agent_protocol: z.int(),
  engine: z.strictObject({ name: z.string(), version: z.string() }),
  machine: z.strictObject({
    type: z.string(),
    cpu: z.string(),
    accelerator: acceleratorSchema,
    vcpus: z.int().min(1),
    memory_mib: z.int().min(1),
    devices: z.array(z.string()),
    /** TSC frequency that the guest believes in; 0 where it has another clock */
    tsc_khz: z.int().min(0),
  }),
  kernel: z.strictObject({ digest: z.string(), version: z.string(), command_line: z.string() }),
  initramfs: z.strictObject({ digest: z.string() }),
  rootfs: z.strictObject({ digest: z.string() }),
  recipe: z.strictObject({ name: z.string(), digest: z.string() }).optional(),
  env: z.record(z.string(), z.string()),
  kernels: z.array(kernelPositionSchema),
  files: z.strictObject({ memory: fileSchema, devices: fileSchema, disk: fileSchema, rootfs: fileSchema }),
});
export type Manifest = z.output<typeof manifestSchema>;
/** What the maker of a snapshot knows; the files are added at commit. */
export type ManifestFacts = Omit<Manifest, "files" | "version">;
