/** A file for a moment, which no directory has and which is gone when it is closed. Blocks: for worker threads. */
import { randomBytes } from "node:crypto";
import { closeSync, fstatSync, openSync, unlinkSync, writeSync } from "node:fs";
import { join } from "node:path";
import { readAt } from "./open-files.ts";

export class UnnamedFile implements Disposable {
  /** Its offset is at the beginning of the file. */
  readonly descriptor: number;

  constructor(dir: string) {
    const path = join(dir, `.part-${randomBytes(8).toString("hex")}`);
    this.descriptor = openSync(path, "wx+", 0o600);
    unlinkSync(path);
  }

  get bytes(): number {
    return fstatSync(this.descriptor).size;
  }

  write(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length;) {
      done += writeSync(this.descriptor, bytes, done, bytes.length - done, done);
    }
  }

  /** Fills `into`, which is as long as the file. */
  read(into: Buffer): Buffer {
    readAt(this.descriptor, into, 0);
    return into;
  }

  [Symbol.dispose](): void {
    closeSync(this.descriptor);
  }
}
