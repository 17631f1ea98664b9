/** Writes the pages blob of a file: chunks are compressed at the same time and written in order. */
import { createHash } from "node:crypto";
import { open, type FileHandle } from "node:fs/promises";
import { chunkBytes, chunkPages, pageBytes } from "../format/limits.ts";
import { compress } from "../zstd.ts";

export class BlobWriter implements AsyncDisposable {
  readonly #file: FileHandle;
  readonly #level: number;
  readonly #atOnce: number;
  readonly #hash = createHash("sha256");
  readonly #lengths: number[] = [];
  readonly #digests: Buffer[] = [];
  readonly #pending: Promise<Buffer>[] = [];
  #chunk = Buffer.allocUnsafe(chunkBytes);
  #inChunk = 0;
  #bytes = 0;
  pages = 0;

  private constructor(file: FileHandle, level: number, atOnce: number) {
    this.#file = file;
    this.#level = level;
    this.#atOnce = atOnce;
  }

  static async open(path: string, options: { level: number; atOnce: number }): Promise<BlobWriter> {
    return new BlobWriter(await open(path, "wx", 0o600), options.level, options.atOnce);
  }

  /** Copies the page. Call drain() when it returns true. */
  add(page: Buffer): boolean {
    page.copy(this.#chunk, this.#inChunk * pageBytes);
    this.pages++;
    if (++this.#inChunk < chunkPages) return false;
    this.#start();
    return true;
  }

  #start(): void {
    const work = compress(this.#chunk.subarray(0, this.#inChunk * pageBytes), this.#level);
    // drain() throws a failure when its turn comes.
    work.catch(() => undefined);
    this.#pending.push(work);
    this.#chunk = Buffer.allocUnsafe(chunkBytes);
    this.#inChunk = 0;
  }

  /** Waits until there is room for another chunk. */
  async drain(left = this.#atOnce): Promise<void> {
    while (this.#pending.length > left) {
      const packed = await this.#pending.shift();
      if (packed === undefined) return;
      await this.#file.writeFile(packed);
      this.#hash.update(packed);
      this.#lengths.push(packed.length);
      this.#digests.push(createHash("sha256").update(packed).digest());
      this.#bytes += packed.length;
    }
  }

  async finish() {
    if (this.#inChunk > 0) this.#start();
    await this.drain(0);
    return {
      size: this.#bytes,
      digest: `sha256:${this.#hash.digest("hex")}`,
      chunkLengths: Uint32Array.from(this.#lengths),
      chunkDigests: Buffer.concat(this.#digests),
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled(this.#pending);
    await this.#file.close();
  }
}
