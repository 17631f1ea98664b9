/** Makes the blobs of the files of a chain. Blocks while it reads: for worker threads. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { AppError } from "@forkd/contract/wire";
import { digestOf } from "../format/digest.ts";
import { maxRuns, pageBytes } from "../format/limits.ts";
import { encodeMap, type Runs } from "../format/page-map.ts";
import { ownSegments } from "../own-pages.ts";
import { OpenFiles } from "../open-files.ts";
import { compress } from "../zstd.ts";
import { BlobWriter } from "./blob-writer.ts";
import { fingerprint, PageTable } from "./page-table.ts";
import { Column, RunList } from "../run-list.ts";

export type FileToPack = {
  path: string;
  bytes: number;
  /** parts that are not holes: start, end, start, … */
  ranges: Float64Array;
  /** runs of its map, if its blobs exist already */
  known?: Runs | undefined;
  /** directory for its blobs `map` and `pages`, which must exist */
  dir: string;
};
export type PackWork = { files: FileToPack[]; level: number; atOnce: number };
type PackFilesOptions = { signal: AbortSignal; onBytes: (done: number) => void };

type Blob = { digest: string; size: number };
/** What was made for a file; undefined if its blobs existed. */
export type PackedFile = { map: Blob; pages: Blob | undefined; runs: number };

const pieceBytes = 1 << 20;
/** Maps are small, and slow levels gain little. */
const mapLevel = 6;
const zeroPage = Buffer.alloc(pageBytes);

export async function packFiles(
  { files, level, atOnce }: PackWork,
  options: PackFilesOptions,
): Promise<(PackedFile | undefined)[]> {
  const lastToMake = files.findLastIndex(({ known }) => known === undefined);
  using pages = new OpenFiles(
    files.map(({ path }) => path),
    "r",
  );
  const seen = new SeenPages(pages);
  const made: (PackedFile | undefined)[] = [];
  let runs = 0;
  for (const [index, file] of files.entries()) {
    if (file.known !== undefined) {
      if (index < lastToMake) seen.addKnown(index, file.known);
      runs += file.known.pages.length;
      made.push(undefined);
      continue;
    }
    const packed = await packFile(index, file, { pages, seen, level, atOnce, ...options });
    runs += packed.runs;
    if (runs > maxRuns) {
      throw new AppError("unsupported", `Cannot pack a chain whose pages are in more than ${maxRuns} runs`);
    }
    made.push(packed);
  }
  return made;
}

/** Pages in the blobs of the files so far. */
class SeenPages {
  readonly #table = new PageTable();
  readonly #files: OpenFiles;
  readonly #page = Buffer.alloc(pageBytes);
  /** number of the first page of each file's blob, counted over all blobs */
  readonly #firsts: number[] = [];
  /** page in its file, of each page of all blobs */
  readonly #pages = new Column();

  constructor(files: OpenFiles) {
    this.#files = files;
  }

  beginFile(): void {
    this.#firsts.push(this.#pages.length);
  }

  /** Where the same bytes are in a blob; adds them to the last file otherwise. */
  findOrAdd(words: Int32Array, at: number, bytes: Buffer, page: number): { source: number; rank: number } {
    const print = fingerprint(words, at);
    const number = this.#table.find(print);
    if (number !== undefined) {
      const source = this.#firsts.findLastIndex((first) => first <= number);
      this.#files.read(source, this.#page, this.#pages.at(number) * pageBytes);
      if (this.#page.equals(bytes)) {
        return { source, rank: number - (this.#firsts[source] ?? 0) };
      }
    }
    const own = this.#pages.length;
    if (number === undefined) this.#table.add(print, own);
    this.#pages.push(page);
    const source = this.#firsts.length - 1;
    return { source, rank: own - (this.#firsts[source] ?? 0) };
  }

  /** Adds the pages of a blob that exists, in the order in which they were added then. */
  addKnown(file: number, runs: Runs): void {
    this.beginFile();
    const bytes = Buffer.alloc(pageBytes);
    const words = new Int32Array(bytes.buffer, bytes.byteOffset, pageBytes / 4);
    for (const { page, count } of ownSegments(runs, file)) {
      for (let index = page; index < page + count; index++) {
        this.#files.read(file, bytes, index * pageBytes);
        const print = fingerprint(words, 0);
        if (this.#table.find(print) === undefined) this.#table.add(print, this.#pages.length);
        this.#pages.push(index);
      }
    }
  }
}

type Tools = PackFilesOptions & { pages: OpenFiles; seen: SeenPages; level: number; atOnce: number };

async function packFile(index: number, file: FileToPack, tools: Tools): Promise<PackedFile> {
  const { pages, seen, level, atOnce, signal, onBytes } = tools;
  const path = join(file.dir, "pages");
  await using blob = await BlobWriter.open(path, { level, atOnce, signal });
  const runs = new RunList();
  const bytes = Buffer.alloc(pieceBytes);
  const words = new Int32Array(bytes.buffer, bytes.byteOffset, pieceBytes / 4);
  seen.beginFile();
  for (const { start, length } of pieces(file.ranges)) {
    pages.read(index, bytes.subarray(0, length), start);
    for (let at = 0; at < length; at += pageBytes) {
      const page = bytes.subarray(at, at + pageBytes);
      if (words[at / 4] === 0 && page.equals(zeroPage)) continue;
      const number = (start + at) / pageBytes;
      const { source, rank } = seen.findOrAdd(words, at / 4, page, number);
      runs.add(number, source, rank);
      if (source === index && rank === blob.pages && blob.add(page)) await blob.drain();
    }
    onBytes(length);
    // What happened meanwhile, such as the end of a program or a cancellation, is only seen now.
    await setImmediate();
    signal.throwIfAborted();
  }
  const { chunkLengths, chunkDigests, ...made } = await blob.finish();
  const map = encodeMap(
    { fileBytes: file.bytes, ownPages: blob.pages, chunkLengths, chunkDigests, runs: runs.take() },
    index,
  );
  const packedMap = await compress(map, mapLevel);
  await writeFile(join(file.dir, "map"), packedMap, { mode: 0o600 });
  return {
    map: { digest: digestOf(packedMap), size: packedMap.length },
    pages: blob.pages === 0 ? undefined : made,
    runs: runs.length,
  };
}

/** Whole pages, each in one piece. */
function* pieces(ranges: Float64Array): Generator<{ start: number; length: number }> {
  let free = 0;
  for (let range = 0; range < ranges.length; range += 2) {
    let start = Math.max(free, Math.floor((ranges[range] ?? 0) / pageBytes) * pageBytes);
    const end = Math.ceil((ranges[range + 1] ?? 0) / pageBytes) * pageBytes;
    for (; start < end; start += pieceBytes) yield { start, length: Math.min(pieceBytes, end - start) };
    free = Math.max(free, end);
  }
}
