/**
 * Packs a snapshot: the blobs of the files of its chain, then config and OCI manifest, which name them by
 * digest. Blobs come from the cache or are made there.
 */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { AppError, archiveLevels } from "@forkd/contract";
import { dataRanges, removeTree, Scope } from "@forkd/base";
import { manifestName, type Store, type StoredSnapshot } from "@forkd/store";
import { chainOf, encodeConfig, type Chain, type ConfigFile } from "../format/config.ts";
import { describe, type Descriptor } from "../format/descriptor.ts";
import { formatVersion } from "../format/limits.ts";
import { mediaTypes } from "../format/media-types.ts";
import { encodeManifest, type OciManifest } from "../format/oci-manifest.ts";
import { decodeMap, maxMapBytes, type PageMap } from "../format/page-map.ts";
import { runWorker } from "../worker.ts";
import { decompress } from "../zstd.ts";
import type { BlobCache, CachedBlobs } from "./blob-cache.ts";
import type { FileToPack, PackedFile, PackWork } from "./pack-files.ts";
import { zstdVersion } from "./zstd-version.ts";

/** Chunks at the same time; each takes space for its pages. */
const maxAtOnce = 16;

export type PackProgress = { phase: "verify" | "pack"; doneBytes: number; totalBytes: number };

/** Something that travels with the snapshot and is not part of it, such as a list of its packages. */
export type ExtraBlob = { mediaType: string; bytes: Buffer; annotations?: Record<string, string> };

export type PackOptions = {
  cache: BlobCache;
  /** 1 to 19 */
  level?: number | undefined;
  signal?: AbortSignal | undefined;
  onProgress?: ((progress: PackProgress) => void) | undefined;
  extras?: readonly ExtraBlob[] | undefined;
  annotations?: Readonly<Record<string, string>> | undefined;
};

export type PackedBlob = Descriptor & {
  /** its bytes, or a part of them */
  open: (range?: { offset: number; length: number }) => Readable;
};

/** A snapshot as blobs. The cache keeps the blobs until it is disposed. */
export class PackedSnapshot implements AsyncDisposable {
  readonly tag: string;
  readonly id: string;
  readonly manifest: OciManifest;
  /** config, maps, pages, extras: each once */
  readonly blobs: readonly PackedBlob[];
  /** the snapshot and its ancestors */
  readonly chainLength: number;
  /** lengths of the files of the chain */
  readonly fileBytes: number;
  readonly #scope: Scope;

  constructor(
    snapshot: StoredSnapshot,
    parts: { manifest: OciManifest; blobs: readonly PackedBlob[]; chain: Chain; scope: Scope },
  ) {
    this.tag = snapshot.tag;
    this.id = snapshot.id;
    this.manifest = parts.manifest;
    this.blobs = parts.blobs;
    this.chainLength = parts.chain.snapshots.length;
    this.fileBytes = parts.chain.files.reduce((sum, { bytes }) => sum + bytes, 0);
    this.#scope = parts.scope;
  }

  /** of all blobs and the manifest */
  get packedBytes(): number {
    return this.blobs.reduce((sum, { size }) => sum + size, this.manifest.bytes.length);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#scope[Symbol.asyncDispose]();
  }
}

export async function packSnapshot(
  store: Store,
  snapshot: StoredSnapshot,
  options: PackOptions,
): Promise<PackedSnapshot> {
  const { cache, signal, extras = [], annotations } = options;
  const { least, most } = archiveLevels;
  const level = options.level ?? archiveLevels.default;
  if (!Number.isInteger(level) || level < least || level > most) {
    throw new AppError(
      "invalid_request",
      `Invalid request: level: must be a whole number from ${least} to ${most}`,
      { details: { level } },
    );
  }
  const zstd = await zstdVersion();
  const stored = (await store.chain(snapshot)).toReversed();
  await verifyAll(store, stored, options);
  const texts = await Promise.all(stored.map(({ dir }) => readFile(join(dir, manifestName))));
  const chain = chainOf(texts);
  const paths = pathsOf(chain, stored);
  await using scope = new Scope();
  scope.defer(async () => void (await cache.trim()));
  const keys = keysOf(chain, { level, zstd });
  for (const key of keys) scope.defer(cache.hold(key));
  const blobs = await blobsOf({ chain, paths, keys, level }, options);
  signal?.throwIfAborted();
  const files = chain.files.map(({ bytes, digest }, index): ConfigFile => {
    const { map, pages } = blobs[index] ?? missing(index);
    return { bytes, digest, map: map.digest, ...(pages && { pages: pages.digest }) };
  });
  const config = encodeConfig(chain, files);
  const made = [
    ...blobs.map(({ dir, map }) => fromFile(mediaTypes.map, map, join(dir, "map"))),
    ...blobs.flatMap(({ dir, pages }) =>
      pages ? [fromFile(mediaTypes.pages, pages, join(dir, "pages"))] : [],
    ),
    ...extras.map(({ mediaType, bytes, annotations: about }) => ({
      ...fromBytes(mediaType, bytes),
      ...(about && { annotations: about }),
    })),
  ];
  const layers = [...new Map(made.map((blob) => [blob.digest, blob])).values()];
  const configBlob = fromBytes(mediaTypes.config, config);
  const manifest = encodeManifest({
    chain,
    config: withoutOpen(configBlob),
    layers: layers.map(withoutOpen),
    annotations,
  });
  return new PackedSnapshot(snapshot, {
    manifest,
    blobs: [configBlob, ...layers],
    chain,
    scope: scope.keep(),
  });
}

/** A damaged file would only be noticed where it is unpacked. */
async function verifyAll(
  store: Store,
  stored: readonly StoredSnapshot[],
  options: PackOptions,
): Promise<void> {
  const { signal, onProgress } = options;
  for (const [index, each] of stored.entries()) {
    onProgress?.({ phase: "verify", doneBytes: index, totalBytes: stored.length });
    await store.verify(each, { signal, attachments: true });
  }
}

function pathsOf(chain: Chain, stored: readonly StoredSnapshot[]): string[] {
  const paths: string[] = [];
  for (const [index, { files }] of chain.snapshots.entries()) {
    for (const [name, file] of files) paths[file] ??= join(stored[index]?.dir ?? "", name);
  }
  return paths;
}

/** The blobs of a file depend on the files before it, whose pages it does not repeat. */
function keysOf({ files }: Chain, how: { level: number; zstd: string }): string[] {
  const hash = createHash("sha256").update(JSON.stringify({ formatVersion, ...how }));
  return files.map((file) => hash.update(JSON.stringify(file)).copy().digest("hex"));
}

type Work = { chain: Chain; paths: string[]; keys: string[]; level: number };

async function blobsOf(work: Work, options: PackOptions): Promise<CachedBlobs[]> {
  const { chain, paths, keys, level } = work;
  const { cache, signal, onProgress } = options;
  const found: (CachedBlobs | undefined)[] = [];
  for (const key of keys) found.push(await cache.find(key));
  if (!found.includes(undefined)) return found.filter((each) => each !== undefined);
  const maps = await mapsOf(chain, found);
  await using drafts = new Scope();
  const files: FileToPack[] = [];
  for (const [index, { bytes }] of chain.files.entries()) {
    const path = paths[index] ?? missing(index);
    const known = maps[index]?.runs;
    const dir = known ? "" : await cache.draft();
    if (!known) drafts.defer(() => removeTree(dir));
    files.push({ path, bytes, ranges: known ? new Float64Array() : await rangesOf(path), known, dir });
  }
  const totalBytes = files.reduce((sum, { ranges }) => sum + lengthOf(ranges), 0);
  let doneBytes = 0;
  const data: PackWork = { files, level, atOnce: Math.min(availableParallelism(), maxAtOnce) };
  const made = await runWorker<(PackedFile | undefined)[]>(
    new URL("./pack-worker.js", import.meta.url),
    data,
    {
      signal,
      onBytes: (bytes) => {
        doneBytes += bytes;
        onProgress?.({ phase: "pack", doneBytes, totalBytes });
      },
    },
  );
  const blobs: CachedBlobs[] = [];
  for (const [index, key] of keys.entries()) {
    const packed = made[index];
    const { map, pages } = packed ?? {};
    blobs.push(
      map ? await cache.add(key, files[index]?.dir ?? "", { map, pages }) : (found[index] ?? missing(index)),
    );
  }
  return blobs;
}

/** The maps of the files before the last one whose blobs are missing; a map needs those before it. */
async function mapsOf(chain: Chain, found: (CachedBlobs | undefined)[]): Promise<PageMap[]> {
  const maps: PageMap[] = [];
  for (const [file, cached] of found.entries()) {
    // Blobs after one that is missing are made again: without its map theirs cannot be read.
    if (!cached) return maps;
    const { bytes: fileBytes = 0 } = chain.files[file] ?? {};
    const packed = await readFile(join(cached.dir, "map"));
    const ranks = maps.map(({ ownPages }) => ownPages);
    const blobBytes = cached.pages?.size ?? 0;
    maps.push(decodeMap(await decompress(packed, maxMapBytes), { file, fileBytes, blobBytes, ranks }));
  }
  return maps;
}

async function rangesOf(path: string): Promise<Float64Array> {
  return Float64Array.from((await dataRanges(path)).flatMap(({ start, end }) => [start, end]));
}

function lengthOf(ranges: Float64Array): number {
  let sum = 0;
  for (const [index, at] of ranges.entries()) sum += index % 2 === 0 ? -at : at;
  return sum;
}

function missing(index: number): never {
  throw new Error(`Cannot pack file ${index} of the chain: it was not made`);
}

function fromFile(
  mediaType: string,
  { digest, size }: { digest: string; size: number },
  path: string,
): PackedBlob {
  const open: PackedBlob["open"] = (range) =>
    range ? partOf(path, range) : createReadStream(path, { highWaterMark: 1 << 20 });
  return { mediaType, digest, size, open };
}

function partOf(path: string, { offset, length }: { offset: number; length: number }): Readable {
  if (length === 0) return Readable.from([]);
  return createReadStream(path, { start: offset, end: offset + length - 1, highWaterMark: 1 << 20 });
}

function fromBytes(mediaType: string, bytes: Buffer): PackedBlob {
  const open: PackedBlob["open"] = (range) =>
    Readable.from([range ? bytes.subarray(range.offset, range.offset + range.length) : bytes]);
  return { ...describe(mediaType, bytes), open };
}

function withoutOpen({ mediaType, digest, size, annotations }: PackedBlob): Descriptor {
  return { mediaType, digest, size, ...(annotations && { annotations }) };
}
