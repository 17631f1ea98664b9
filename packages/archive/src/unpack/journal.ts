/**
 * Which chunks of a transfer are written, so that it can continue after an interruption: a line per chunk after
 * one that names the files being built. It is not synced: after a crash of the host, the digests of the files
 * show whether something is missing.
 */
import { open, readFile, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";

const name = "journal";
const maxBytes = 64 << 20;

export class Journal implements AsyncDisposable {
  readonly #file: FileHandle;

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  /** Chunks that were written, as "file chunk"; undefined if there is no journal for these files. */
  static async read(dir: string, files: readonly string[]): Promise<Set<string> | undefined> {
    let text: string;
    try {
      text = await readFile(join(dir, name), "latin1");
    } catch (error) {
      if (isErrno(error, "ENOENT")) return undefined;
      throw error;
    }
    const [first, ...lines] = text.slice(0, maxBytes).split("\n");
    if (first !== titleOf(files)) return undefined;
    // The last line may be incomplete.
    return new Set(lines.slice(0, -1).filter((line) => /^\d+ \d+$/.test(line)));
  }

  /** Continues the journal of these files, or begins one. */
  static async open(dir: string, files: readonly string[], options: { fresh: boolean }): Promise<Journal> {
    const file = await open(join(dir, name), options.fresh ? "w" : "a", 0o600);
    if (options.fresh) await file.appendFile(`${titleOf(files)}\n`);
    else await file.appendFile("\n");
    return new Journal(file);
  }

  async add(file: number, chunk: number): Promise<void> {
    await this.#file.appendFile(`${file} ${chunk}\n`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
  }
}

function titleOf(files: readonly string[]): string {
  return JSON.stringify({ version: 1, files });
}
