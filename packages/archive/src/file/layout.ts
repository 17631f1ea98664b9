/** Names and fixed parts of an OCI image layout. */
import { tagPattern } from "@forkd/contract";
import { z } from "zod";
import { badArchive } from "../format/bad-archive.ts";
import { parseJson } from "../format/config.ts";
import { descriptorSchema, type Descriptor } from "../format/descriptor.ts";
import { maxManifestBytes } from "../format/limits.ts";
import { mediaTypes } from "../format/media-types.ts";

export const layoutName = "oci-layout";
export const layoutText = '{"imageLayoutVersion":"1.0.0"}';
export const indexName = "index.json";
export const refName = "org.opencontainers.image.ref.name";
/** Most bytes of the two files above. */
export const maxLayoutBytes = 1 << 20;

export function blobName(digest: string): string {
  return `blobs/sha256/${digest.slice("sha256:".length)}`;
}

export function digestOfName(name: string): string | undefined {
  const [, hex] = /^blobs\/sha256\/([0-9a-f]{64})$/.exec(name) ?? [];
  return hex === undefined ? undefined : `sha256:${hex}`;
}

export function isKnownDirectory(name: string): boolean {
  return /^(\.|blobs|blobs\/sha256)?\/?$/.test(name);
}

const layoutSchema = z.object({ imageLayoutVersion: z.literal("1.0.0") });
const indexSchema = z.object({ schemaVersion: z.literal(2), manifests: z.array(descriptorSchema).max(1000) });

export function checkLayout(bytes: Buffer): void {
  if (!layoutSchema.safeParse(parseJson(bytes, "its oci-layout")).success)
    throw badArchive("its oci-layout is not of version 1.0.0");
}

/** The one manifest, and the tag under which it was packed. */
export function parseIndex(bytes: Buffer): { manifest: Descriptor; tag: string | undefined } {
  const parsed = indexSchema.safeParse(parseJson(bytes, "its index.json"));
  if (!parsed.success) throw badArchive(`its index.json: ${z.prettifyError(parsed.error)}`, parsed.error);
  const { manifests } = parsed.data;
  const [manifest] = manifests;
  if (!manifest || manifests.length > 1)
    throw badArchive(`its index.json names ${manifests.length} manifests, not one`);
  if (manifest.mediaType !== mediaTypes.manifest)
    throw badArchive(`its index.json names a "${manifest.mediaType}"`);
  if (manifest.size > maxManifestBytes) throw badArchive(`its OCI manifest has ${manifest.size} bytes`);
  const tag = manifest.annotations?.[refName];
  return { manifest, tag: tag !== undefined && tagPattern.test(tag) ? tag : undefined };
}
