/** Collects output up to a limit; what comes after it is counted and dropped. */
export class OutputBuffer {
  readonly #limit: number;
  #chunks: Buffer[] = [];
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
    if (room <= 0) return;
    // The bytes are a view of the connection's buffer.
    const kept = Buffer.from(bytes.subarray(0, room));
    this.#chunks.push(kept);
    this.#bytes += kept.length;
  }

  /** UTF-8 with replacement characters for what is not. */
  text(): string {
    return Buffer.concat(this.#chunks).toString("utf8");
  }
}
