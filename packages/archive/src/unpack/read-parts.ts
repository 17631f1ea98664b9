/** What comes before the pages: OCI manifest, config and maps, each bounded and compared with its digest. */
import { createHash } from "node:crypto";
import { badArchive } from "../format/bad-archive.ts";
import { parseConfig, type Config } from "../format/config.ts";
import type { Descriptor } from "../format/descriptor.ts";
import { maxRuns } from "../format/limits.ts";
import { blobsOf, parseManifest, type OciManifest } from "../format/oci-manifest.ts";
import { decodeMap, maxMapBytes, type PageMap } from "../format/page-map.ts";
import { BadFrame, decompress } from "../zstd.ts";

/** Where the blobs of a snapshot come from. */
export type BlobSource = {
  /** bytes of the OCI manifest */
  manifest: Buffer;
  /** a blob, or a part of it; the reader checks length and digest */
  read: (blob: Descriptor, range?: { offset: number; length: number }) => AsyncIterable<Uint8Array>;
};

export type ArchiveParts = {
  oci: OciManifest;
  config: Config;
  /** of each file of the chain */
  maps: PageMap[];
  /** pages blob of each file of the chain */
  pages: (Descriptor | undefined)[];
};

export async function readParts(source: BlobSource, signal?: AbortSignal): Promise<ArchiveParts> {
  const oci = parseManifest(source.manifest);
  const config = parseConfig(await readBlob(source, oci.config, signal));
  const blobs = blobsOf(oci, config);
  const maps: PageMap[] = [];
  let runs = 0;
  /** Files without pages may have the same map, which a stream has only once. */
  const read = new Map<string, Buffer>();
  for (const [file, { map, pages }] of blobs.entries()) {
    const fileBytes = config.files[file]?.bytes ?? 0;
    const ranks = maps.map(({ ownPages }) => ownPages);
    const packed = read.get(map.digest) ?? (await readBlob(source, map, signal));
    if (!pages) read.set(map.digest, packed);
    const content = await unpackMap(packed, file, signal);
    const decoded = decodeMap(content, { file, fileBytes, blobBytes: pages?.size ?? 0, ranks });
    runs += decoded.runs.pages.length;
    if (runs > maxRuns) throw badArchive(`its maps have more than ${maxRuns} runs`);
    maps.push(decoded);
  }
  return { oci, config, maps, pages: blobs.map(({ pages }) => pages) };
}

/** The whole blob, checked. */
export async function readBlob(source: BlobSource, blob: Descriptor, signal?: AbortSignal): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  const hash = createHash("sha256");
  let length = 0;
  for await (const piece of source.read(blob)) {
    signal?.throwIfAborted();
    length += piece.length;
    if (length > blob.size) throw badArchive(`blob ${blob.digest} is longer than ${blob.size} bytes`);
    hash.update(piece);
    pieces.push(piece);
  }
  if (length !== blob.size)
    throw badArchive(`blob ${blob.digest} has ${length} bytes instead of ${blob.size}`);
  if (`sha256:${hash.digest("hex")}` !== blob.digest)
    throw badArchive(`blob ${blob.digest} differs from its digest`);
  return Buffer.concat(pieces, length);
}

async function unpackMap(packed: Buffer, file: number, signal?: AbortSignal): Promise<Buffer> {
  try {
    return await decompress(packed, maxMapBytes, signal);
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    throw badArchive(`the map of file ${file} cannot be decompressed: ${error.message}`, error);
  }
}
