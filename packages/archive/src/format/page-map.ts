/**
 * The map of a file: where each of its pages is. A page that no run covers is zero. A run names pages of a blob
 * directly, its own or one of an earlier file, so that a map has no cycles. Runs ascend by construction: each
 * begins a number of pages after the one before.
 */
import { badArchive } from "./bad-archive.ts";
import { chunkBytes, chunkPages, maxChunks, maxPackedChunk, maxRuns, pageBytes } from "./limits.ts";

const magic = Buffer.from("FKDPAGES", "latin1");
const version = 1;
const headerBytes = 40;
const digestBytes = 32;
const chunkEntryBytes = 4 + digestBytes;
const runColumns = 4;

/** Columns of runs; `sources` are indexes of files, `ranks` count the pages of that file's blob. */
export type Runs = {
  pages: Uint32Array;
  counts: Uint32Array;
  sources: Uint32Array;
  ranks: Uint32Array;
};

export type PageMap = {
  fileBytes: number;
  /** pages of the file's own blob */
  ownPages: number;
  /** compressed length of each chunk */
  chunkLengths: Uint32Array;
  /** sha256 of each compressed chunk, one after the other */
  chunkDigests: Buffer;
  runs: Runs;
};

/** Length of a map before compression. */
function mapBytes(chunks: number, runs: number): number {
  return headerBytes + chunks * chunkEntryBytes + runs * runColumns * 4;
}
export const maxMapBytes = mapBytes(maxChunks, maxRuns);

/** `file`: the index of the file in its chain. */
export function encodeMap(map: PageMap, file: number): Buffer {
  const { runs, chunkLengths } = map;
  const count = runs.pages.length;
  const bytes = Buffer.alloc(mapBytes(chunkLengths.length, count));
  magic.copy(bytes, 0);
  bytes.writeUInt32LE(version, 8);
  bytes.writeUInt32LE(pageBytes, 12);
  bytes.writeBigUInt64LE(BigInt(map.fileBytes), 16);
  bytes.writeBigUInt64LE(BigInt(map.ownPages), 24);
  bytes.writeUInt32LE(chunkLengths.length, 32);
  bytes.writeUInt32LE(count, 36);
  let at = headerBytes;
  for (const length of chunkLengths) at = bytes.writeUInt32LE(length, at);
  at += map.chunkDigests.copy(bytes, at);
  let end = 0;
  for (let run = 0; run < count; run++) {
    at = bytes.writeUInt32LE((runs.pages[run] ?? 0) - end, at);
    end = (runs.pages[run] ?? 0) + (runs.counts[run] ?? 0);
  }
  for (const each of runs.counts) at = bytes.writeUInt32LE(each, at);
  // Counted back from the file itself, so that a map of a chain's later file looks like any other.
  for (const source of runs.sources) at = bytes.writeUInt32LE(file - source, at);
  const next = new Map<number, number>();
  for (let run = 0; run < count; run++) {
    const source = runs.sources[run] ?? 0;
    const rank = runs.ranks[run] ?? 0;
    at = bytes.writeUInt32LE((rank - (next.get(source) ?? 0)) >>> 0, at);
    next.set(source, rank + (runs.counts[run] ?? 0));
  }
  return bytes;
}

type Expected = {
  /** index of the file in its chain */
  file: number;
  fileBytes: number;
  /** length of its pages blob, 0 without one */
  blobBytes: number;
  /** pages in the blobs of the files before it */
  ranks: readonly number[];
};

/** Checks everything that a map says. */
export function decodeMap(bytes: Buffer, expected: Expected): PageMap {
  const bad = (problem: string) => badArchive(`the map of file ${expected.file} ${problem}`);
  if (bytes.length < headerBytes) throw bad(`has only ${bytes.length} bytes`);
  if (!bytes.subarray(0, 8).equals(magic)) throw bad("is not a map");
  if (bytes.readUInt32LE(8) !== version) throw bad(`has version ${bytes.readUInt32LE(8)}, not ${version}`);
  if (bytes.readUInt32LE(12) !== pageBytes) throw bad(`has pages of ${bytes.readUInt32LE(12)} bytes`);
  const fileBytes = bytes.readBigUInt64LE(16);
  const own = bytes.readBigUInt64LE(24);
  const chunks = bytes.readUInt32LE(32);
  const count = bytes.readUInt32LE(36);
  if (fileBytes !== BigInt(expected.fileBytes)) throw bad(`is for a file of ${fileBytes} bytes`);
  const filePages = Math.ceil(expected.fileBytes / pageBytes);
  if (own > BigInt(filePages)) throw bad(`has ${own} pages, more than the file`);
  const ownPages = Number(own);
  if (chunks > maxChunks || chunks !== Math.ceil(ownPages / chunkPages))
    throw bad(`has ${chunks} chunks for ${ownPages} pages`);
  if (count > maxRuns || count > filePages) throw bad(`has ${count} runs`);
  if (bytes.length !== mapBytes(chunks, count)) throw bad(`has ${bytes.length} bytes`);
  let at = headerBytes;
  const column = (length: number): Uint32Array => {
    const values = new Uint32Array(length);
    for (let index = 0; index < length; index++, at += 4) values[index] = bytes.readUInt32LE(at);
    return values;
  };
  const chunkLengths = column(chunks);
  let blobBytes = 0;
  for (const [index, length] of chunkLengths.entries()) {
    if (length === 0 || length > maxPackedChunk) throw bad(`has a chunk ${index} of ${length} bytes`);
    blobBytes += length;
  }
  if (blobBytes !== expected.blobBytes)
    throw bad(`has chunks of ${blobBytes} bytes, but the blob has ${expected.blobBytes}`);
  const chunkDigests = Buffer.from(bytes.subarray(at, at + chunks * digestBytes));
  at += chunks * digestBytes;
  const runs = { pages: column(count), counts: column(count), sources: column(count), ranks: column(count) };
  resolveRuns(runs, { ...expected, filePages, ownPages }, bad);
  return { fileBytes: expected.fileBytes, ownPages, chunkLengths, chunkDigests, runs };
}

/** Turns the differences of the columns into numbers, in place. */
function resolveRuns(
  { pages, counts, sources, ranks }: Runs,
  facts: Expected & { filePages: number; ownPages: number },
  bad: (problem: string) => Error,
): void {
  const limits = [...facts.ranks, facts.ownPages];
  const next = new Map<number, number>();
  let end = 0;
  for (let run = 0; run < pages.length; run++) {
    const page = end + (pages[run] ?? 0);
    const count = counts[run] ?? 0;
    if (count === 0) throw bad(`has an empty run ${run}`);
    end = page + count;
    if (end > facts.filePages) throw bad(`has a run ${run} that ends after the file`);
    const back = sources[run] ?? 0;
    const source = facts.file - back;
    const limit = limits[source];
    if (back > facts.file || limit === undefined)
      throw bad(`has a run ${run} from a file that does not come before it`);
    const rank = ((next.get(source) ?? 0) + (ranks[run] ?? 0)) >>> 0;
    if (rank + count > limit) throw bad(`has a run ${run} that ends after its source`);
    next.set(source, rank + count);
    pages[run] = page;
    sources[run] = source;
    ranks[run] = rank;
  }
}

/** Pages of a chunk, by its index. */
function pagesOfChunk({ ownPages }: PageMap, chunk: number): number {
  return Math.min(chunkPages, ownPages - chunk * chunkPages);
}

export function bytesOfChunk(map: PageMap, chunk: number): number {
  return Math.min(chunkBytes, pagesOfChunk(map, chunk) * pageBytes);
}
