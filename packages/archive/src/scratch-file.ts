/**
 * Files that no directory has, for what programs read and write. Each is used for one chunk after the other: new
 * pages for every chunk would cost more than decompressing it. Blocks: for worker threads.
 */
import { randomBytes } from "node:crypto";
import { closeSync, ftruncateSync, openSync, readFileSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import { readAt } from "./open-files.ts";

export class ScratchFiles implements Disposable {
  readonly #dir: string;
  readonly #all: ScratchFile[] = [];
  readonly #free: ScratchFile[] = [];

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Free again when `work` has ended. What an earlier chunk has left in it is still there. */
  async use<Result>(work: (file: ScratchFile) => Promise<Result>): Promise<Result> {
    const file = this.#free.pop() ?? this.#make();
    try {
      return await work(file);
    } finally {
      this.#free.push(file);
    }
  }

  #make(): ScratchFile {
    const file = new ScratchFile(this.#dir);
    this.#all.push(file);
    return file;
  }

  /** Nothing uses them. */
  [Symbol.dispose](): void {
    for (const file of this.#all) file[Symbol.dispose]();
  }
}

export class ScratchFile implements Disposable {
  readonly #descriptor: number;

  constructor(dir: string) {
    const path = join(dir, `.part-${randomBytes(8).toString("hex")}`);
    this.#descriptor = openSync(path, "wx+", 0o600);
    unlinkSync(path);
  }

  /** Makes it have these bytes only. */
  write(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length;) {
      done += writeSync(this.#descriptor, bytes, done, bytes.length - done, done);
    }
    ftruncateSync(this.#descriptor, bytes.length);
  }

  /** Fills `into` from the beginning of the file. */
  read(into: Buffer): Buffer {
    readAt(this.#descriptor, into, 0);
    return into;
  }

  /** Opens it again: the offset is at the beginning. */
  open(): OpenScratchFile {
    return new OpenScratchFile(`/proc/self/fd/${this.#descriptor}`);
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}

class OpenScratchFile implements Disposable {
  readonly descriptor: number;

  constructor(path: string) {
    this.descriptor = openSync(path, "r+");
  }

  /** How far it was read or written. */
  get offset(): number {
    const facts = readFileSync(`/proc/self/fdinfo/${this.descriptor}`, "latin1");
    const offset = /^pos:\s*(\d+)$/m.exec(facts)?.[1];
    if (offset === undefined) throw new Error(`Cannot tell the offset of descriptor ${this.descriptor}`);
    return Number(offset);
  }

  [Symbol.dispose](): void {
    closeSync(this.descriptor);
  }
}
