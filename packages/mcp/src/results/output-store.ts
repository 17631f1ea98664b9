/**
 * Whole outputs that a result shows only in part, for `forkd://outputs/{id}` and the tool read_output. It holds
 * a bounded number of bytes, for a bounded time; the oldest output makes room for a new one.
 */
import { randomBytes } from "node:crypto";
import type { Collected } from "./collector.ts";

type StoredOutput = {
  readonly id: string;
  readonly name: string;
  readonly output: Collected;
  readonly storedAt: number;
};

type StoreLimits = { readonly bytes: number; readonly entries: number; readonly ageMs: number };

const defaults: StoreLimits = { bytes: 32 * 1024 * 1024, entries: 256, ageMs: 60 * 60 * 1000 };

export class OutputStore {
  readonly #limits: StoreLimits;
  /** In the order of their storing. */
  readonly #entries = new Map<string, StoredOutput>();
  #bytes = 0;

  constructor(limits: Partial<StoreLimits> = {}) {
    this.#limits = { ...defaults, ...limits };
  }

  /** Bytes held. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Stores an output and returns its address. */
  add(name: string, output: Collected): string {
    // An id that cannot be guessed: over HTTP one caller must not read the output of another.
    const id = randomBytes(12).toString("hex");
    this.#entries.set(id, { id, name, output, storedAt: performance.now() });
    this.#bytes += sizeOf(output);
    this.#makeRoom();
    return outputUri(id);
  }

  get(id: string): StoredOutput | undefined {
    this.#makeRoom();
    return this.#entries.get(id);
  }

  list(): StoredOutput[] {
    this.#makeRoom();
    return [...this.#entries.values()];
  }

  #makeRoom(): void {
    const tooOld = performance.now() - this.#limits.ageMs;
    for (const entry of this.#entries.values()) {
      const fits = this.#bytes <= this.#limits.bytes && this.#entries.size <= this.#limits.entries;
      if (fits && entry.storedAt >= tooOld) return;
      this.#entries.delete(entry.id);
      this.#bytes -= sizeOf(entry.output);
    }
  }
}

function sizeOf({ head, tail }: Collected): number {
  return head.length + tail.length;
}

export function outputUri(id: string): string {
  return `forkd://outputs/${id}`;
}
