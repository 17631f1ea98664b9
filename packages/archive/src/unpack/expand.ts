/** Writes pages of compressed chunks, or of other files, to their places. Blocks: for worker threads. */
import { createHash } from "node:crypto";
import { writeSync } from "node:fs";
import { badArchive } from "../format/bad-archive.ts";
import { chunkBytes, pageBytes } from "../format/limits.ts";
import { OpenFiles } from "../open-files.ts";
import { ScratchFiles, type ScratchFile } from "../scratch-file.ts";
import { BadFrame, decompressFile } from "../zstd.ts";

/** Groups of four numbers: file, its page, page of the source, count. */
export type Targets = Uint32Array;
const targetWords = 4;
const copyPages = 256;

export type StagedFile = { path: string; bytes: number };

export class Expander implements Disposable {
  readonly #scratch: ScratchFiles;
  readonly #files: readonly StagedFile[];
  readonly #open: OpenFiles;
  /** the content of a chunk while it is written */
  readonly #buffer = Buffer.allocUnsafeSlow(chunkBytes);

  /** `dir`: for parts of a chunk while it is decompressed */
  constructor(dir: string, files: readonly StagedFile[]) {
    this.#scratch = new ScratchFiles(dir);
    this.#files = files;
    this.#open = new OpenFiles(
      files.map(({ path }) => path),
      "r+",
    );
  }

  /** Checks a chunk and writes its pages. */
  async expand(packed: Buffer, expected: { sha256: string; bytes: number; name: string }, targets: Targets) {
    const { sha256, bytes, name } = expected;
    if (createHash("sha256").update(packed).digest("hex") !== sha256)
      throw badArchive(`${name} differs from its digest`);
    await this.#scratch.use(async (content) => {
      const length = await this.#decompress(packed, content, name);
      if (length !== bytes) throw badArchive(`${name} has ${length} bytes when decompressed, not ${bytes}`);
      const pages = content.read(this.#buffer.subarray(0, bytes));
      this.#each(targets, ({ file, page, source, count }) => {
        this.#write(file, page, pages.subarray(source * pageBytes, (source + count) * pageBytes));
      });
    });
  }

  /** Returns the length of the content. */
  #decompress(packed: Buffer, content: ScratchFile, name: string): Promise<number> {
    return this.#scratch.use(async (source) => {
      source.write(packed);
      using input = source.open();
      using output = content.open();
      try {
        await decompressFile(input.descriptor, output.descriptor, chunkBytes);
      } catch (error) {
        if (!(error instanceof BadFrame)) throw error;
        throw badArchive(`${name} cannot be decompressed: ${error.message}`, error);
      }
      return output.offset;
    });
  }

  /** Copies pages of a file that is here already. */
  copy(from: string, targets: Targets): void {
    using source = new OpenFiles([from], "r");
    const buffer = Buffer.alloc(copyPages * pageBytes);
    this.#each(targets, ({ file, page, source: first, count }) => {
      for (let done = 0; done < count; done += copyPages) {
        const part = buffer.subarray(0, Math.min(copyPages, count - done) * pageBytes);
        source.read(0, part, (first + done) * pageBytes);
        this.#write(file, page + done, part);
      }
    });
  }

  #each(
    targets: Targets,
    work: (target: { file: number; page: number; source: number; count: number }) => void,
  ): void {
    for (let at = 0; at < targets.length; at += targetWords) {
      const [file = 0, page = 0, source = 0, count = 0] = targets.subarray(at, at + targetWords);
      work({ file, page, source, count });
    }
  }

  /** The last page of a file may be shorter. */
  #write(file: number, page: number, pages: Buffer): void {
    const { bytes = 0 } = this.#files[file] ?? {};
    const position = page * pageBytes;
    const part = pages.subarray(0, Math.min(pages.length, bytes - position));
    const descriptor = this.#open.descriptor(file);
    for (let done = 0; done < part.length;) {
      done += writeSync(descriptor, part, done, part.length - done, position + done);
    }
  }

  [Symbol.dispose](): void {
    this.#open[Symbol.dispose]();
    this.#scratch[Symbol.dispose]();
  }
}
