/** Manifests and indexes of OCI and Docker, checked before use. */
import { z } from "zod";
import { isDigest } from "./digest.ts";
import { broken } from "./errors.ts";

export const mediaTypes = {
  manifest: "application/vnd.oci.image.manifest.v1+json",
  index: "application/vnd.oci.image.index.v1+json",
  dockerManifest: "application/vnd.docker.distribution.manifest.v2+json",
  dockerList: "application/vnd.docker.distribution.manifest.list.v2+json",
  empty: "application/vnd.oci.empty.v1+json",
} as const;

/** The most bytes of a manifest that registries must accept. */
export const maxManifestBytes = 4 * 1024 * 1024;
const maxEntries = 10_000;

const mediaType = z
  .string()
  .max(255)
  .regex(/^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*\/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*$/);
const annotations = z.record(z.string().max(1024), z.string().max(65_536)).optional();

const descriptorSchema = z.object({
  mediaType,
  digest: z.string().refine(isDigest, { error: "is not a digest" }),
  size: z.number().int().min(0).max(Number.MAX_SAFE_INTEGER),
  annotations,
  artifactType: mediaType.optional(),
});
const platformSchema = z
  .object({
    architecture: z.string().max(64),
    os: z.string().max(64),
    variant: z.string().max(64).optional(),
  })
  .optional();
const manifestSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: mediaType.optional(),
  artifactType: mediaType.optional(),
  config: descriptorSchema,
  layers: z.array(descriptorSchema).max(maxEntries),
  subject: descriptorSchema.optional(),
  annotations,
});
const indexSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: mediaType.optional(),
  artifactType: mediaType.optional(),
  manifests: z.array(descriptorSchema.extend({ platform: platformSchema })).max(maxEntries),
  annotations,
});

export type Descriptor = z.infer<typeof descriptorSchema>;
export type ImageManifest = z.infer<typeof manifestSchema>;
type ImageIndex = z.infer<typeof indexSchema>;

/** A manifest or an index; the media type of the answer says which, and the content if it does not. */
export function parseManifest(
  bytes: Uint8Array,
  type: string,
): { kind: "manifest"; manifest: ImageManifest } | { kind: "index"; index: ImageIndex } {
  const what = "Cannot read the manifest";
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch {
    throw broken(what, "it is not JSON");
  }
  const own = (value as { mediaType?: unknown } | null)?.mediaType;
  // A manifest that both sides read differently could pass a check as one kind and be used as the other.
  if (typeof own === "string" && isKnown(type) && own !== type)
    throw broken(what, `it calls itself "${own.slice(0, 100)}", and the registry "${type}"`);
  const kind = typeof own === "string" ? own : type;
  if (kind === mediaTypes.index || kind === mediaTypes.dockerList)
    return { kind: "index", index: checked(indexSchema, value, what) };
  if (kind === mediaTypes.manifest || kind === mediaTypes.dockerManifest)
    return { kind: "manifest", manifest: checked(manifestSchema, value, what) };
  throw broken(what, `its type "${kind.slice(0, 100)}" is not supported`);
}

function isKnown(type: string): boolean {
  return (Object.values(mediaTypes) as string[]).includes(type);
}

function checked<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw broken(what, `${issue?.path.join(".") ?? ""} ${issue?.message ?? "is wrong"}`.trim());
}
