/**
 * Collects output up to a limit; what comes after it is dropped. One buffer that doubles: a guest that sends single bytes
 * must not cost an object each.
 */
const firstBytes = 4096;

export class OutputBuffer {
  readonly #limit: number;
  #buffer = Buffer.alloc(0);
  #bytes = 0;
  #cut = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get isCut(): boolean {
    return this.#cut;
  }

  push(bytes: Uint8Array): void {
    const room = this.#limit - this.#bytes;
    if (bytes.length > room) this.#cut = true;
    const kept = bytes.subarray(0, room);
    const need = this.#bytes + kept.length;
    if (need > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(
        Math.min(this.#limit, Math.max(need, this.#buffer.length * 2, firstBytes)),
      );
      this.#buffer.copy(grown, 0, 0, this.#bytes);
      this.#buffer = grown;
    }
    this.#buffer.set(kept, this.#bytes);
    this.#bytes = need;
  }

  /** UTF-8 with replacement characters for what is not. */
  text(): string {
    return this.#buffer.toString("utf8", 0, this.#bytes);
  }
}
