/**
 * Writes the pages blob of a file: chunks are compressed at the same time and written in order. A chunk is
 * compressed from one file to another, so that the programs do not wait for this thread.
 */
import { createHash } from "node:crypto";
import { open, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import { chunkBytes, chunkPages, pageBytes } from "../format/limits.ts";
import { ScratchFiles } from "../scratch-file.ts";
import { compressFile } from "../zstd.ts";

type Options = { level: number; atOnce: number; signal?: AbortSignal | undefined };

export class BlobWriter implements AsyncDisposable {
  readonly #scratch: ScratchFiles;
  readonly #file: FileHandle;
  readonly #options: Options;
  readonly #hash = createHash("sha256");
  readonly #lengths: number[] = [];
  readonly #digests: Buffer[] = [];
  readonly #pending: Promise<Buffer>[] = [];
  readonly #chunk = Buffer.allocUnsafeSlow(chunkBytes);
  #inChunk = 0;
  #bytes = 0;
  pages = 0;

  private constructor(path: string, file: FileHandle, options: Options) {
    this.#scratch = new ScratchFiles(dirname(path));
    this.#file = file;
    this.#options = options;
  }

  static async open(path: string, options: Options): Promise<BlobWriter> {
    return new BlobWriter(path, await open(path, "wx", 0o600), options);
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
    const work = this.#compress(this.#chunk.subarray(0, this.#inChunk * pageBytes));
    // drain() throws a failure when its turn comes.
    work.catch(() => undefined);
    this.#pending.push(work);
    this.#inChunk = 0;
  }

  /** `bytes` is free for other use when this returns its promise. */
  #compress(bytes: Buffer): Promise<Buffer> {
    const { level, signal } = this.#options;
    return this.#scratch.use((source) => {
      source.write(bytes);
      return this.#scratch.use(async (target) => {
        using input = source.open();
        using output = target.open();
        await compressFile(input.descriptor, output.descriptor, { bytes: bytes.length, level, signal });
        return target.read(Buffer.allocUnsafeSlow(output.offset));
      });
    });
  }

  /** Waits until there is room for another chunk. */
  async drain(left = this.#options.atOnce): Promise<void> {
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
    this.#scratch[Symbol.dispose]();
    await this.#file.close();
  }
}
