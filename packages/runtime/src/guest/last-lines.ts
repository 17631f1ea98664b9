/** The last lines of a stream of bytes, within a bound. */
const maxBytes = 2 * 1024 * 1024;
const newline = 0x0a;

export class LastLines {
  readonly #lines: number;
  #kept: Buffer = Buffer.alloc(0);

  constructor(lines: number) {
    this.#lines = lines;
  }

  push(bytes: Uint8Array): void {
    this.#kept = Buffer.concat([this.#kept, bytes]).subarray(-maxBytes);
  }

  bytes(): Buffer {
    // The newline at the end closes the last line.
    let start = this.#kept.length;
    for (let left = this.#lines; left > 0 && start > 0; left--)
      start = start < 2 ? 0 : this.#kept.lastIndexOf(newline, start - 2) + 1;
    return this.#kept.subarray(start);
  }
}
