/** The OCI manifest of a snapshot: its config, and its blobs as layers. */
import { z } from "zod";
import { badArchive } from "./bad-archive.ts";
import { parseJson, type Chain, type Config } from "./config.ts";
import { descriptorSchema, type Descriptor } from "./descriptor.ts";
import { digestOf } from "./digest.ts";
import { maxConfigBytes, maxManifestBytes, maxPackedMap } from "./limits.ts";
import { mediaTypes } from "./media-types.ts";

const manifestSchema = z.object({
  schemaVersion: z.literal(2),
  mediaType: z.literal(mediaTypes.manifest).optional(),
  artifactType: z.string().optional(),
  config: descriptorSchema,
  layers: z.array(descriptorSchema).max(100_000),
  annotations: z.record(z.string(), z.string()).optional(),
});

export type OciManifest = {
  bytes: Buffer;
  /** sha256:… of the bytes */
  digest: string;
  config: Descriptor;
  layers: Descriptor[];
  annotations: Readonly<Record<string, string>>;
};

type Parts = {
  chain: Chain;
  config: Descriptor;
  /** maps and pages of the files, then what else travels with the snapshot */
  layers: readonly Descriptor[];
  annotations?: Readonly<Record<string, string>> | undefined;
};

/** The same bytes for the same snapshot: nothing in it depends on the tag, on the time or on this host. */
export function encodeManifest({ chain, config, layers, annotations }: Parts): OciManifest {
  const all = { ...annotationsOf(chain), ...annotations };
  const sorted = Object.fromEntries(Object.entries(all).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  const text = JSON.stringify({
    schemaVersion: 2,
    mediaType: mediaTypes.manifest,
    artifactType: mediaTypes.artifact,
    config,
    layers,
    annotations: sorted,
  });
  const bytes = Buffer.from(text);
  return { bytes, digest: digestOf(bytes), config, layers: [...layers], annotations: sorted };
}

/** What a registry shows without reading the config. */
function annotationsOf({ snapshots, files }: Chain): Record<string, string> {
  const head = snapshots.at(-1);
  if (!head) return {};
  const { manifest, id } = head;
  const { engine, machine, recipe, created_at_unix: created } = manifest;
  return {
    "org.opencontainers.image.created": new Date(created * 1000).toISOString(),
    "forkd.snapshot.id": id,
    "forkd.snapshot.chain": String(snapshots.length),
    "forkd.snapshot.bytes": String(files.reduce((sum, { bytes }) => sum + bytes, 0)),
    "forkd.snapshot.forkd": manifest.forkd_version,
    "forkd.snapshot.engine": `${engine.name} ${engine.version}`,
    "forkd.snapshot.machine": machine.type,
    "forkd.snapshot.accelerator": machine.accelerator,
    "forkd.snapshot.cpu": machine.cpu,
    "forkd.snapshot.vcpus": String(machine.vcpus),
    "forkd.snapshot.memory_mib": String(machine.memory_mib),
    "forkd.snapshot.kernel": manifest.kernel.version,
    ...(recipe && { "forkd.snapshot.recipe": recipe.name, "forkd.snapshot.recipe_digest": recipe.digest }),
  };
}

export function parseManifest(bytes: Buffer, expectedDigest?: string): OciManifest {
  if (bytes.length > maxManifestBytes) throw badArchive(`its OCI manifest has ${bytes.length} bytes`);
  const digest = digestOf(bytes);
  if (expectedDigest !== undefined && digest !== expectedDigest)
    throw badArchive("its OCI manifest differs from its digest");
  const parsed = manifestSchema.safeParse(parseJson(bytes, "its OCI manifest"));
  if (!parsed.success) throw badArchive(`its OCI manifest: ${z.prettifyError(parsed.error)}`, parsed.error);
  const { config, layers, annotations = {} } = parsed.data;
  if (config.mediaType !== mediaTypes.config)
    throw badArchive(`it is not a snapshot: its config has the media type "${config.mediaType}"`);
  if (config.size > maxConfigBytes) throw badArchive(`its config has ${config.size} bytes`);
  return { bytes, digest, config, layers, annotations };
}

/** The blobs of each file. Throws if one is missing, has another type, or if a blob of ours has no file. */
export function blobsOf(
  { layers }: OciManifest,
  { blobs }: Config,
): { map: Descriptor; pages: Descriptor | undefined }[] {
  const known = new Map<string, Descriptor>();
  for (const layer of layers) {
    if (layer.mediaType !== mediaTypes.map && layer.mediaType !== mediaTypes.pages) continue;
    if (known.has(layer.digest)) throw badArchive(`its OCI manifest names ${layer.digest} twice`);
    known.set(layer.digest, layer);
  }
  const unused = new Set(known.keys());
  const take = (digest: string, mediaType: string, maxSize: number): Descriptor => {
    const found = known.get(digest);
    if (!found) throw badArchive(`its OCI manifest does not name blob ${digest}`);
    if (found.mediaType !== mediaType) throw badArchive(`blob ${digest} has another media type`);
    if (found.size > maxSize) throw badArchive(`blob ${digest} has ${found.size} bytes`);
    unused.delete(digest);
    return found;
  };
  const found = blobs.map(({ map, pages }) => ({
    map: take(map, mediaTypes.map, maxPackedMap),
    pages: pages === undefined ? undefined : take(pages, mediaTypes.pages, Number.MAX_SAFE_INTEGER),
  }));
  const [extra] = unused;
  if (extra !== undefined) throw badArchive(`no file of its config has blob ${extra}`);
  return found;
}
