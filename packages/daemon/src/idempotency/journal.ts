/**
 * Answers on disk, one per line, so that they outlive the daemon. A line is synced before its answer is sent;
 * a line that a crash cut short was never answered and is skipped.
 */
import { open, readFile, type FileHandle } from "node:fs/promises";
import { isErrno, Mutex, writeFileAtomic } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { z } from "zod";

const entrySchema = z.object({
  principal: z.string(),
  key: z.string(),
  route: z.string(),
  digest: z.string(),
  status: z.number(),
  body: z.string(),
  at_ms: z.number(),
});
export type Entry = z.output<typeof entrySchema>;

export class Journal implements AsyncDisposable {
  readonly #path: string;
  readonly #turn = new Mutex();
  #file: FileHandle | undefined;
  #isTorn = false;
  /** bytes of the file */
  size = 0;

  constructor(path: string) {
    this.#path = path;
  }

  async read(): Promise<Entry[]> {
    let text: string;
    try {
      text = await readFile(this.#path, "utf8");
    } catch (error) {
      if (isErrno(error, "ENOENT")) return [];
      throw new AppError("host_not_ready", `Cannot read ${this.#path}: ${String(error)}`, { cause: error });
    }
    // The next line must not be appended to one that a crash cut short.
    this.#isTorn = text !== "" && !text.endsWith("\n");
    this.size = Buffer.byteLength(text);
    return text.split("\n").flatMap((line) => entryOf(line) ?? []);
  }

  append(entry: Entry): Promise<void> {
    return this.#turn.run(async () => {
      this.#file ??= await open(this.#path, "a", 0o600);
      // The next line must not be appended to what a failed append left.
      const line = Buffer.from(`${this.#isTorn ? "\n" : ""}${JSON.stringify(entry)}\n`);
      this.#isTorn = true;
      await this.#file.appendFile(line);
      this.#isTorn = false;
      await this.#file.datasync();
      this.size += line.length;
    });
  }

  /** Replaces the content with these entries. */
  rewrite(entries: readonly Entry[]): Promise<void> {
    return this.#turn.run(async () => {
      let size = 0;
      // One at a time: encoding all of them at once would block every request.
      const lines = function* () {
        for (const entry of entries) {
          const line = `${JSON.stringify(entry)}\n`;
          size += Buffer.byteLength(line);
          yield line;
        }
      };
      await this.#close();
      await writeFileAtomic(this.#path, lines(), 0o600);
      this.#isTorn = false;
      this.size = size;
    });
  }

  async #close(): Promise<void> {
    const file = this.#file;
    this.#file = undefined;
    await file?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#turn.run(() => this.#close());
  }
}

function entryOf(line: string): Entry | undefined {
  if (line === "") return undefined;
  try {
    return entrySchema.parse(JSON.parse(line));
  } catch {
    return undefined; // cut short, or of another version
  }
}
