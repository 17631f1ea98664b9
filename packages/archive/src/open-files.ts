/** Descriptors of many files, of which only a few are open at a time. Blocks: for worker threads. */
import { closeSync, openSync, readSync } from "node:fs";

const maxOpen = 64;

export class OpenFiles implements Disposable {
  readonly #paths: readonly string[];
  readonly #flags: "r" | "r+";
  /** index → descriptor, the least recently used first */
  readonly #open = new Map<number, number>();

  constructor(paths: readonly string[], flags: "r" | "r+") {
    this.#paths = paths;
    this.#flags = flags;
  }

  /** Valid until the next call. */
  descriptor(file: number): number {
    const known = this.#open.get(file);
    if (known !== undefined) {
      this.#open.delete(file);
      this.#open.set(file, known);
      return known;
    }
    const [oldest] = this.#open;
    if (oldest !== undefined && this.#open.size >= maxOpen) {
      this.#open.delete(oldest[0]);
      closeSync(oldest[1]);
    }
    const opened = openSync(this.#paths[file] ?? "", this.#flags);
    this.#open.set(file, opened);
    return opened;
  }

  /** Fills `into`; what is after the end of the file is zero. */
  read(file: number, into: Buffer, position: number): void {
    into.fill(0, readAt(this.descriptor(file), into, position));
  }

  [Symbol.dispose](): void {
    for (const descriptor of this.#open.values()) closeSync(descriptor);
    this.#open.clear();
  }
}

/** Fills `into` as far as the file goes. Returns how far that is. */
export function readAt(descriptor: number, into: Buffer, position: number): number {
  let done = 0;
  while (done < into.length) {
    const count = readSync(descriptor, into, done, into.length - done, position + done);
    if (count === 0) break;
    done += count;
  }
  return done;
}
