/**
 * Output that is collected for a response. There is a limit for each call and one for all calls together, so
 * that guests cannot use up the daemon's memory. Output above either limit is dropped, and the response says
 * so.
 */

/** Memory for output, shared by all calls. */
export class OutputRoom {
  #left: number;

  constructor(bytes: number) {
    this.#left = bytes;
  }

  get left(): number {
    return this.#left;
  }

  /** Returns how many of the bytes fit. */
  take(bytes: number): number {
    const taken = Math.min(bytes, this.#left);
    this.#left -= taken;
    return taken;
  }

  release(bytes: number): void {
    this.#left += bytes;
  }
}

const firstBytes = 4096;

/** One buffer that doubles, so that a guest that sends single bytes does not cost an object for each. */
export class OutputBuffer implements Disposable {
  readonly #limit: number;
  readonly #room: OutputRoom;
  #buffer = Buffer.alloc(0);
  #bytes = 0;
  #cut = false;

  constructor(limit: number, room: OutputRoom) {
    this.#limit = limit;
    this.#room = room;
  }

  get isCut(): boolean {
    return this.#cut;
  }

  push(bytes: Uint8Array): void {
    // Output after a gap would be misleading.
    if (this.#cut) return;
    const kept = this.#room.take(Math.min(bytes.length, this.#limit - this.#bytes));
    if (kept < bytes.length) this.#cut = true;
    const need = this.#bytes + kept;
    if (need > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(
        Math.min(this.#limit, Math.max(need, this.#buffer.length * 2, firstBytes)),
      );
      this.#buffer.copy(grown, 0, 0, this.#bytes);
      this.#buffer = grown;
    }
    this.#buffer.set(bytes.subarray(0, kept), this.#bytes);
    this.#bytes = need;
  }

  /** As UTF-8, with replacement characters for invalid bytes. */
  text(): string {
    return this.#buffer.toString("utf8", 0, this.#bytes);
  }

  [Symbol.dispose](): void {
    this.#room.release(this.#bytes);
    this.#bytes = 0;
    this.#buffer = Buffer.alloc(0);
  }
}
