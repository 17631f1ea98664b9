/**
 * Which page has been seen before, over all files of a chain. The fingerprint is fast and weak: the caller
 * compares the bytes, so that two pages with one fingerprint only cost space. The table is bounded: pages after
 * the limit are compared with those before it.
 */
import { pageBytes } from "../format/limits.ts";

const pageWords = pageBytes / 4;
/** 16 GiB of different pages; the table takes 16 bytes each, half of them free. */
const maxEntries = 1 << 22;
const firstSlots = 1 << 16;
/** A guest can make pages whose fingerprints meet in one slot; they must not make a search long. */
const maxProbes = 64;

/** The two halves of the fingerprint of a page. */
type Fingerprint = { low: number; high: number };

export function fingerprint(words: Int32Array, at: number): Fingerprint {
  let a = 0x9e3779b1;
  let b = 0x85ebca77;
  for (let index = at; index < at + pageWords; index += 2) {
    a = Math.imul(a ^ (words[index] ?? 0), 0x27d4eb2f);
    b = Math.imul(b ^ (words[index + 1] ?? 0), 0x165667b1);
    a = (a << 13) | (a >>> 19);
    b = (b << 17) | (b >>> 15);
  }
  a ^= b >>> 15;
  b ^= Math.imul(a, 0x9e3779b1) >>> 13;
  // 0 marks a free slot.
  return { low: Math.imul(a, 0x85ebca77) >>> 0 || 1, high: b >>> 0 };
}

export class PageTable {
  #slots = firstSlots;
  #low = new Uint32Array(firstSlots);
  #high = new Uint32Array(firstSlots);
  #values = new Uint32Array(firstSlots);
  #size = 0;

  /** The value of the first page with this fingerprint. */
  find({ low, high }: Fingerprint): number | undefined {
    const mask = this.#slots - 1;
    for (let probe = 0; probe < maxProbes; probe++) {
      const slot = (low + probe) & mask;
      if (this.#low[slot] === 0) return undefined;
      if (this.#low[slot] === low && this.#high[slot] === high) return this.#values[slot];
    }
    return undefined;
  }

  /** The fingerprint is not in the table. */
  add(print: Fingerprint, value: number): void {
    if (this.#size === maxEntries) return;
    if (++this.#size * 2 > this.#slots) this.#grow();
    this.#insert(print.low, print.high, value);
  }

  #insert(low: number, high: number, value: number): void {
    const mask = this.#slots - 1;
    for (let probe = 0; probe < maxProbes; probe++) {
      const slot = (low + probe) & mask;
      if (this.#low[slot] !== 0) continue;
      this.#low[slot] = low;
      this.#high[slot] = high;
      this.#values[slot] = value;
      return;
    }
  }

  #grow(): void {
    const [lows, highs, values] = [this.#low, this.#high, this.#values];
    this.#slots *= 2;
    this.#low = new Uint32Array(this.#slots);
    this.#high = new Uint32Array(this.#slots);
    this.#values = new Uint32Array(this.#slots);
    for (const [slot, low] of lows.entries()) {
      if (low !== 0) this.#insert(low, highs[slot] ?? 0, values[slot] ?? 0);
    }
  }
}
