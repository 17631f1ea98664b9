/**
 * Output that waits for a slow consumer, as an async iterable with one consumer.
 *
 * The credit limits the bytes. This class limits the number of entries, because a guest that writes byte by
 * byte would otherwise use a hundred times its credit in memory. Bytes are copied: a view of one byte would
 * keep its whole chunk.
 */
import { createDeferred, type Deferred } from "@forkd/base";
import { ProtocolError } from "../errors.ts";
import type { AgentOutput } from "../wire/replies.ts";
import type { OutputStreamNumber } from "../wire/requests.ts";

/** Number of entries up to which streams 1 and 2 stay interleaved in order of arrival. */
const looseEntries = 1024;
const maxEntries = 16_384;

interface Entry {
  readonly stream: OutputStreamNumber;
  readonly offset: number;
  buffer: Buffer;
  length: number;
}

export class OutputQueue implements AsyncIterableIterator<AgentOutput> {
  readonly #onConsumed: (stream: OutputStreamNumber, bytes: number) => void;
  readonly #onReturn: () => void;
  #entries: Entry[] = [];
  #head = 0;
  #lastOf = new Map<OutputStreamNumber, Entry>();
  #waiter: Deferred<IteratorResult<AgentOutput>> | undefined;
  #ended: { error: Error | undefined } | undefined;

  constructor(onConsumed: (stream: OutputStreamNumber, bytes: number) => void, onReturn: () => void) {
    this.#onConsumed = onConsumed;
    this.#onReturn = onReturn;
  }

  push(output: AgentOutput): void {
    if (this.#ended) return;
    if (this.#waiter) {
      const waiter = this.#waiter;
      this.#waiter = undefined;
      waiter.resolve({ done: false, value: output });
      this.#onConsumed(output.stream, output.bytes.length);
      return;
    }
    const { stream, offset, bytes } = output;
    const waiting = this.#entries.length - this.#head;
    const last = this.#lastOf.get(stream);
    if (last && (waiting >= looseEntries || last === this.#entries.at(-1)) && follows(last, offset)) {
      append(last, bytes);
      return;
    }
    if (waiting >= maxEntries) throw new ProtocolError("output in too many pieces");
    // Stream 3 keeps its order relative to the other streams: nothing is merged across it.
    if (stream === 3) this.#lastOf.clear();
    else this.#lastOf.delete(3);
    const entry = { stream, offset, buffer: Buffer.from(bytes), length: bytes.length };
    this.#lastOf.set(stream, entry);
    this.#entries.push(entry);
  }

  /** No more output follows. The consumer still gets the queued output, then the error, if any. */
  end(error: Error | undefined): void {
    if (this.#ended) return;
    this.#ended = { error };
    const waiter = this.#waiter;
    this.#waiter = undefined;
    if (error) waiter?.reject(error);
    else waiter?.resolve({ done: true, value: undefined });
  }

  next(): Promise<IteratorResult<AgentOutput>> {
    const entry = this.#entries[this.#head];
    if (entry) {
      this.#head++;
      if (this.#lastOf.get(entry.stream) === entry) this.#lastOf.delete(entry.stream);
      if (this.#head === this.#entries.length || this.#head > looseEntries) {
        this.#entries = this.#entries.slice(this.#head);
        this.#head = 0;
      }
      const { stream, offset } = entry;
      this.#onConsumed(stream, entry.length);
      return Promise.resolve({
        done: false,
        value: { stream, offset, bytes: entry.buffer.subarray(0, entry.length) },
      });
    }
    if (this.#ended?.error) return Promise.reject(this.#ended.error);
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    if (this.#waiter) return Promise.reject(new TypeError("Output has one consumer"));
    this.#waiter = createDeferred();
    return this.#waiter.promise;
  }

  /** The consumer stops early: drops queued and later output, so that the process does not block. */
  return(): Promise<IteratorResult<AgentOutput>> {
    const dropped = this.#entries.slice(this.#head);
    this.#entries = [];
    this.#head = 0;
    this.#lastOf.clear();
    this.end(undefined);
    for (const { stream, length } of dropped) this.#onConsumed(stream, length);
    this.#onReturn();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

function follows(entry: Entry, offset: number): boolean {
  return entry.offset + entry.length === offset;
}

function append(entry: Entry, bytes: Buffer): void {
  const needed = entry.length + bytes.length;
  if (needed > entry.buffer.length) {
    const larger = Buffer.allocUnsafe(Math.max(needed, entry.buffer.length * 2));
    entry.buffer.copy(larger, 0, 0, entry.length);
    entry.buffer = larger;
  }
  bytes.copy(entry.buffer, entry.length);
  entry.length = needed;
}
