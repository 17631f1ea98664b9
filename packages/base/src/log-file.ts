/**
 * A log file of bounded size: when it is full it becomes `<path>.1`, `.1` becomes `.2`, and the oldest file
 * is deleted. It can be reopened on request, after a program such as logrotate has moved it.
 *
 * Lines are written synchronously, so that the last lines of a process that exits are in the file. A line
 * that cannot be written (a full disk) is dropped and counted; logging must not stop the program.
 */
import { closeSync, fstatSync, mkdirSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { isErrno } from "./atomic-file.ts";

type LogFileOptions = {
  readonly path: string;
  /** size at which it is rotated; 0: never */
  readonly maxBytes: number;
  /** rotated files that are kept */
  readonly keep: number;
};

export class LogFile {
  readonly path: string;
  readonly #options: LogFileOptions;
  #fd: number;
  #size: number;
  #lost = 0;
  /** the last line in the file may lack its end */
  #isTorn = false;

  constructor(options: LogFileOptions) {
    this.path = options.path;
    this.#options = options;
    [this.#fd, this.#size] = openLog(options.path);
  }

  write(line: string): void {
    const { maxBytes } = this.#options;
    const bytes = Buffer.byteLength(line);
    try {
      if (maxBytes > 0 && this.#size > 0 && this.#size + bytes > maxBytes) this.#tryToRotate();
      if (this.#lost > 0) {
        this.#append(lostRecord(this.#lost));
        this.#lost = 0;
      }
      this.#append(line);
    } catch {
      this.#lost += 1; // reported in the file as soon as it can be written again
    }
  }

  /** Opens the path again. If that fails, the old file stays in use. */
  reopen(): void {
    const [fd, size] = openLog(this.path);
    closeSync(this.#fd);
    this.#fd = fd;
    this.#size = size;
    this.#isTorn = false;
  }

  /** Whether a descriptor, such as stderr, is this very file. */
  isSameAs(fd: number): boolean {
    const [mine, other] = [fstatSync(this.#fd), fstatSync(fd)];
    return mine.dev === other.dev && mine.ino === other.ino;
  }

  #append(text: string): void {
    const data = Buffer.from(this.#isTorn ? `\n${text}` : text);
    let done = 0;
    while (done < data.length) {
      const count = writeSync(this.#fd, data, done);
      done += count;
      this.#size += count;
      this.#isTorn = done < data.length;
    }
  }

  /** If rotation fails, keep appending and retry after another `maxBytes`. */
  #tryToRotate(): void {
    try {
      this.#rotate();
    } catch {
      this.#size = 0;
    }
  }

  #rotate(): void {
    const { keep, path } = this.#options;
    const name = (number: number) => (number === 0 ? path : `${path}.${number}`);
    if (keep === 0) rmSync(path, { force: true });
    for (let number = keep - 1; number >= 0; number -= 1) move(name(number), name(number + 1));
    this.reopen();
  }
}

function openLog(path: string): [fd: number, size: number] {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const fd = openSync(path, "a", 0o600);
  return [fd, fstatSync(fd).size];
}

function move(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!isErrno(error, "ENOENT")) throw error;
  }
}

function lostRecord(lines: number): string {
  const record = { level: "warn", time: new Date().toISOString(), event: "log.lost", lines };
  return `${JSON.stringify(record)}\n`;
}
