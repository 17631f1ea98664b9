/** Manifests, indexes and configs of container images: their shapes, bounds and media types. Pure. */
import { z } from "zod";

export const maxDocumentBytes = 4 << 20;
const maxLayers = 512;
const maxIndexEntries = 1000;

const indexTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
];
const manifestTypes = [
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
];

const configTypes = [
  "application/vnd.oci.image.config.v1+json",
  "application/vnd.docker.container.image.v1+json",
];
const layerTypes =
  /^application\/vnd\.(oci\.image\.layer\.v1\.tar|docker\.image\.rootfs\.diff\.tar)([+.](gzip|zstd))?$/;
const foreignTypes = /nondistributable|rootfs\.foreign/;

export const digestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/, "is not a sha256 digest");
const size = z.int().min(0);
const platformSchema = z.looseObject({
  architecture: z.string().max(64).default(""),
  os: z.string().max(64).default(""),
  variant: z.string().max(64).optional(),
});
const descriptorSchema = z.looseObject({
  mediaType: z.string().max(255),
  digest: digestSchema,
  size,
  platform: platformSchema.nullish(),
  annotations: z.record(z.string(), z.string()).nullish(),
});
export type Descriptor = z.output<typeof descriptorSchema>;

const indexSchema = z.looseObject({
  mediaType: z.string().optional(),
  manifests: z.array(descriptorSchema).max(maxIndexEntries),
});
const manifestSchema = z.looseObject({
  mediaType: z.string().optional(),
  artifactType: z.string().max(255).optional(),
  config: descriptorSchema,
  layers: z.array(descriptorSchema).max(maxLayers),
});
export type ImageManifest = z.output<typeof manifestSchema>;

const strings = z.array(z.string().max(131_072)).max(10_000).nullish();
const nameSet = z.record(z.string().max(4096), z.unknown()).nullish();
const configSchema = z.looseObject({
  architecture: z.string().max(64).nullish(),
  os: z.string().max(64).nullish(),
  rootfs: z.looseObject({ diff_ids: z.array(digestSchema).max(maxLayers) }),
  config: z
    .looseObject({
      Env: strings,
      WorkingDir: z.string().max(4096).nullish(),
      User: z.string().max(256).nullish(),
      Entrypoint: strings,
      Cmd: strings,
      ExposedPorts: nameSet,
      Volumes: nameSet,
      Labels: z.record(z.string(), z.string().max(131_072)).nullish(),
    })
    .nullish(),
});
export type ConfigDocument = z.output<typeof configSchema>;

/** What is wrong with a document; the source adds which image it is. */
export class DocumentFault extends Error {
  override readonly name = "DocumentFault";
}

export function parseIndexOrManifest(
  bytes: Uint8Array,
  mediaType: string | undefined,
): { index: Descriptor[] } | { manifest: ImageManifest } {
  const json = parseJson(bytes, "manifest");
  const stated = z.looseObject({ mediaType: z.string().optional() }).safeParse(json).data?.mediaType;
  const type = stated ?? mediaType;
  const has = (key: string): boolean => typeof json === "object" && json !== null && key in json;
  if (type !== undefined ? indexTypes.includes(type) : has("manifests"))
    return { index: check(indexSchema, json, "index").manifests };
  if (type !== undefined && !manifestTypes.includes(type))
    throw new DocumentFault(`its manifest has the media type "${type}", which is not that of an image`);
  return { manifest: check(manifestSchema, json, "manifest") };
}

/** Throws DocumentFault unless config and layers are those of a container image. */
export function requireImage({ config, layers, artifactType }: ImageManifest): void {
  if (!configTypes.includes(config.mediaType)) {
    const type = artifactType ?? config.mediaType;
    throw new DocumentFault(`it is not a container image, but has the type "${type}"`);
  }
  for (const [index, { mediaType }] of layers.entries()) {
    if (layerTypes.test(mediaType)) continue;
    const why = foreignTypes.test(mediaType) ? "foreign layers are not in the image" : "it is unknown";
    throw new DocumentFault(`layer ${index + 1} has the media type "${mediaType}": ${why}`);
  }
}

export function parseConfig(bytes: Uint8Array): ConfigDocument {
  return check(configSchema, parseJson(bytes, "config"), "config");
}

/** The manifest.json of `docker save`. */
export function parseSavedImages(bytes: Uint8Array): SavedImage[] {
  return check(savedSchema, parseJson(bytes, "manifest.json"), "manifest.json");
}

const memberName = z.string().min(1).max(4096);
const savedSchema = z
  .array(
    z.looseObject({
      Config: memberName,
      RepoTags: z.array(z.string().max(4096)).nullish(),
      Layers: z.array(memberName).max(maxLayers).nullish(),
    }),
  )
  .max(maxIndexEntries);
type SavedImage = z.output<typeof savedSchema>[number];

function parseJson(bytes: Uint8Array, what: string): unknown {
  if (bytes.length > maxDocumentBytes)
    throw new DocumentFault(`its ${what} is larger than ${maxDocumentBytes} bytes`);
  try {
    return JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch (error) {
    throw new DocumentFault(`its ${what} is not JSON`, { cause: error });
  }
}

function check<T>(schema: z.ZodType<T>, json: unknown, what: string): T {
  const parsed = schema.safeParse(json);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const where = issue?.path.join(".") ?? "";
  throw new DocumentFault(
    `its ${what} is not valid: ${where === "" ? "" : `${where}: `}${issue?.message ?? ""}`,
  );
}
