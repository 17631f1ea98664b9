/** Collects output of any length in bounded memory: its beginning and its end. */

/** Bytes of each half. */
const halfBytes = 2 * 1024 * 1024;

export type Collected = {
  readonly head: Uint8Array;
  /** What follows `head` after a gap of `missing` bytes. */
  readonly tail: Uint8Array;
  readonly missing: number;
  readonly total: number;
};

export class Collector {
  readonly #half: number;
  readonly #head = new Growing();
  readonly #tail = new Growing();
  #total = 0;

  constructor(half: number = halfBytes) {
    this.#half = half;
  }

  /** Bytes received. */
  get total(): number {
    return this.#total;
  }

  push(bytes: Uint8Array): void {
    this.#total += bytes.length;
    const first = bytes.subarray(0, this.#half - this.#head.length);
    this.#head.append(first);
    const rest = bytes.subarray(first.length);
    this.#tail.append(rest.subarray(-this.#half));
    // Moves bytes only when twice as many as needed are there, so that each is moved a bounded number of times.
    if (this.#tail.length > 2 * this.#half) this.#tail.keepLast(this.#half);
  }

  collected(): Collected {
    this.#tail.keepLast(this.#half);
    const head = this.#head.bytes();
    const tail = this.#tail.bytes();
    return { head, tail, missing: this.#total - head.length - tail.length, total: this.#total };
  }
}

/** All of a text that is in memory. */
export function collect(text: string): Collected {
  const collector = new Collector();
  collector.push(Buffer.from(text));
  return collector.collected();
}

/** One buffer: a list of chunks would cost a hundred times its content when a guest writes single bytes. */
class Growing {
  #buffer = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  append(bytes: Uint8Array): void {
    const needed = this.#length + bytes.length;
    if (needed > this.#buffer.length) {
      const larger = Buffer.alloc(Math.max(needed, 2 * this.#buffer.length, 4096));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    this.#buffer.set(bytes, this.#length);
    this.#length = needed;
  }

  keepLast(count: number): void {
    if (this.#length <= count) return;
    this.#buffer.copyWithin(0, this.#length - count, this.#length);
    this.#length = count;
  }

  /** A copy of its own size. */
  bytes(): Uint8Array {
    return Uint8Array.prototype.slice.call(this.#buffer, 0, this.#length);
  }
}
