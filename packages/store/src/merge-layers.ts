/** Merges two consecutive layers into one with the same effect. */
import { open, rm, type FileHandle } from "node:fs/promises";
import { chunkBytes, writeFully } from "./chunk-digests.ts";
import { finishLayer, type FinishedLayer } from "./finish-layer.ts";
import { badLayer, encodeExtent, extentBytes, headerBytes, pageBytes } from "./layer-format.ts";
import { readPages, type Layer, type PageRun } from "./layer.ts";

/** Prefers the upper layer's pages. Fails if `outPath` exists; removes it after any later failure. */
export async function mergeLayers(
  lower: Layer,
  upper: Layer,
  outPath: string,
  options: { signal?: AbortSignal | undefined } = {},
): Promise<FinishedLayer> {
  const { memoryBytes } = lower;
  if (upper.memoryBytes !== memoryBytes) {
    throw badLayer(
      `it is for a memory of ${upper.memoryBytes} bytes, but the one below is for ${memoryBytes}`,
    );
  }
  const file = await open(outPath, "wx", 0o600);
  try {
    const writer = new PageWriter(file);
    try {
      await merge(readPages(lower, options.signal), readPages(upper, options.signal), writer);
      await writer.end();
    } finally {
      await file.close();
    }
    const { pages, extents } = writer;
    return await finishLayer(outPath, { memoryBytes, pages, extents, signal: options.signal });
  } catch (error) {
    await rm(outPath, { force: true });
    throw error;
  }
}

async function merge(
  lowerPages: AsyncGenerator<PageRun[]>,
  upperPages: AsyncGenerator<PageRun[]>,
  writer: PageWriter,
): Promise<void> {
  await using lower = new RunCursor(lowerPages);
  await using upper = new RunCursor(upperPages);
  let below = await lower.next();
  let above = await upper.next();
  while (below !== undefined || above !== undefined) {
    if (below === undefined || (above !== undefined && above.firstPage <= below.firstPage)) {
      if (above === undefined) break;
      await writer.add(above);
      const end = endOf(above);
      while (below !== undefined && endOf(below) <= end) below = await lower.next();
      if (below !== undefined && below.firstPage < end) below = dropUntil(below, end);
      above = await upper.next();
    } else {
      const end = Math.min(endOf(below), above?.firstPage ?? Infinity);
      const length = (end - below.firstPage) * pageBytes;
      await writer.add({ firstPage: below.firstPage, bytes: below.bytes.subarray(0, length) });
      below = end === endOf(below) ? await lower.next() : dropUntil(below, end);
    }
  }
}

function endOf({ firstPage, bytes }: PageRun): number {
  return firstPage + bytes.length / pageBytes;
}

function dropUntil({ firstPage, bytes }: PageRun, page: number): PageRun {
  return { firstPage: page, bytes: bytes.subarray((page - firstPage) * pageBytes) };
}

/** Iterates over single runs. The bytes of a run are valid until the next call. */
class RunCursor implements AsyncDisposable {
  readonly #chunks: AsyncGenerator<PageRun[]>;
  #runs: PageRun[] = [];
  #index = 0;

  constructor(chunks: AsyncGenerator<PageRun[]>) {
    this.#chunks = chunks;
  }

  async next(): Promise<PageRun | undefined> {
    while (this.#index === this.#runs.length) {
      const chunk = await this.#chunks.next();
      if (chunk.done === true) return undefined;
      this.#runs = chunk.value;
      this.#index = 0;
    }
    return this.#runs[this.#index++];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#chunks.return(undefined);
  }
}

/** Collects runs into large writes and records the extents. */
class PageWriter {
  pages = 0;
  extents = 0;
  readonly #file: FileHandle;
  readonly #buffer = Buffer.allocUnsafe(chunkBytes);
  #filled = 0;
  #position = headerBytes;
  /** complete extents, in blocks of the table */
  #tables: Buffer[] = [];
  #current: { first: number; count: number } | undefined;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  async add({ firstPage, bytes }: PageRun): Promise<void> {
    const count = bytes.length / pageBytes;
    if (this.#current !== undefined && this.#current.first + this.#current.count === firstPage) {
      this.#current.count += count;
    } else {
      this.#closeExtent();
      this.#current = { first: firstPage, count };
    }
    this.pages += count;
    for (let done = 0; done < bytes.length;) {
      const copied = bytes.copy(this.#buffer, this.#filled, done);
      this.#filled += copied;
      done += copied;
      if (this.#filled === this.#buffer.length) await this.#flush();
    }
  }

  async end(): Promise<void> {
    await this.#flush();
    this.#closeExtent();
    let left = this.extents * extentBytes;
    for (const table of this.#tables) {
      const bytes = table.subarray(0, left);
      await writeFully(this.#file, bytes, this.#position);
      this.#position += bytes.length;
      left -= bytes.length;
    }
    // An empty layer is only a header block.
    await this.#file.truncate(this.#position);
  }

  #closeExtent(): void {
    if (this.#current === undefined) return;
    const at = (this.extents * extentBytes) % chunkBytes;
    if (at === 0) this.#tables.push(Buffer.alloc(chunkBytes));
    encodeExtent(this.#tables.at(-1) ?? Buffer.alloc(0), at, this.#current.first, this.#current.count);
    this.extents++;
    this.#current = undefined;
  }

  async #flush(): Promise<void> {
    await writeFully(this.#file, this.#buffer.subarray(0, this.#filled), this.#position);
    this.#position += this.#filled;
    this.#filled = 0;
  }
}
