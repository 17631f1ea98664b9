/**
 * The output of one process for several followers, each at its own position.
 *
 * The guest sends output once. What it sent last is kept here, as much as the guest itself keeps, so that a
 * follower that joins later can begin with it. The process waits for the slowest follower, but only as long as
 * that one reads: a follower that holds up others and reads nothing for a while is ended with an error, and
 * can attach again.
 */
import { createDeferred, within, type Deferred } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import type { AgentExit, AgentOutput } from "@forkd/machine";

const kib = 1024;
/** How much a follower may be behind before the process waits. More than what is kept for one that joins. */
const windowBytes = 1024 * kib;
/** Bytes and pieces that are kept for followers that join later. */
const historyBytes = 512 * kib;
const historyPieces = 4096;
const defaultStallMs = 10_000;

type Source = {
  next(): Promise<IteratorResult<AgentOutput>>;
  exit(): Promise<AgentExit>;
};

type Piece = AgentOutput & {
  /** bytes of all streams before it */
  readonly at: number;
};

export class SharedOutput {
  readonly #name: string;
  readonly #source: Source;
  readonly #stallMs: number;
  readonly #followers = new Set<OutputFollower>();
  #pieces: Piece[] = [];
  #head = 0;
  #bytes = 0;
  #change: Deferred<void> | undefined;
  #end: { readonly exit: AgentExit } | { readonly error: unknown } | undefined;

  /** `name` is for messages. Reads the source at once. */
  constructor(name: string, source: Source, { stallMs = defaultStallMs } = {}) {
    this.#name = name;
    this.#source = source;
    this.#stallMs = stallMs;
    void this.#pump();
  }

  /** Number of followers that have not been closed. */
  get followers(): number {
    return this.#followers.size;
  }

  /** Begins at these offsets of stdout and stderr, or at the oldest byte that is kept. */
  follow(offsets: readonly [number, number]): OutputFollower {
    const follower = new OutputFollower(offsets, this.#pieces[this.#head]?.at ?? this.#bytes, {
      pieceAt: (position) => this.#pieceAt(position),
      end: () => this.#end,
      moved: () => this.#changed(),
      closed: () => {
        this.#followers.delete(follower);
        this.#changed();
      },
    });
    this.#followers.add(follower);
    return follower;
  }

  async #pump(): Promise<void> {
    try {
      for (;;) {
        await this.#room();
        const { done, value } = await this.#source.next();
        if (done) break;
        this.#push(value);
      }
      this.#end = { exit: await this.#source.exit() };
    } catch (error) {
      this.#end = { error };
    }
    for (const follower of this.#followers) follower.wake();
  }

  #push({ stream, offset, bytes }: AgentOutput): void {
    // A small view would keep the whole chunk that it was received in.
    const own = bytes.length * 2 < bytes.buffer.byteLength ? Buffer.from(bytes) : bytes;
    this.#pieces.push({ stream, offset, bytes: own, at: this.#bytes });
    this.#bytes += bytes.length;
    this.#trim();
    for (const follower of this.#followers) follower.wake();
  }

  /** Drops what every follower has read and no later one is promised. */
  #trim(): void {
    const read = Math.min(this.#bytes, ...[...this.#followers].map(({ position }) => position));
    for (let oldest = this.#pieces[this.#head]; oldest; oldest = this.#pieces[this.#head]) {
      const isKept =
        this.#bytes - oldest.at <= historyBytes && this.#pieces.length - this.#head <= historyPieces;
      if (isKept || oldest.at + oldest.bytes.length > read) break;
      this.#head++;
    }
    if (this.#head < historyPieces) return;
    this.#pieces = this.#pieces.slice(this.#head);
    this.#head = 0;
  }

  /** The piece that begins at a position. Pieces are sorted by it. */
  #pieceAt(position: number): Piece | undefined {
    let low = this.#head;
    let high = this.#pieces.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#pieces[middle]?.at ?? Infinity) < position) low = middle + 1;
      else high = middle;
    }
    return this.#pieces[low];
  }

  /** Waits until no follower is too far behind. */
  async #room(): Promise<void> {
    let heldSince: number | undefined;
    for (;;) {
      const all = [...this.#followers];
      const behind = all.filter(({ position }) => this.#bytes - position >= windowBytes);
      if (behind.length === 0) return;
      this.#change = createDeferred();
      const change = this.#change.promise.then(() => true);
      if (behind.length === all.length) {
        // Only the command waits, which is what its readers want.
        heldSince = undefined;
        // No deadline: the follower reads or is closed.
        await change;
        continue;
      }
      heldSince ??= performance.now();
      const lastReadAt = Math.min(...behind.map(({ readAt }) => readAt));
      const left = Math.max(heldSince, lastReadAt) + this.#stallMs - performance.now();
      if (left > 0) await within(change, left);
      else for (const follower of behind) if (follower.readAt === lastReadAt) follower.fail(this.#stalled());
    }
  }

  #stalled(): AppError {
    const message = `Cannot follow ${this.#name} any longer: this client has read nothing for ${this.#stallMs / 1000} s, and others wait for it`;
    return new AppError("deadline_exceeded", message, {
      details: { timeout_ms: this.#stallMs },
      remedy: advice("Attach again from the offset after the last byte."),
    });
  }

  #changed(): void {
    const change = this.#change;
    this.#change = undefined;
    change?.resolve();
  }
}

type Shared = {
  pieceAt(position: number): Piece | undefined;
  end(): { readonly exit: AgentExit } | { readonly error: unknown } | undefined;
  moved(): void;
  closed(): void;
};

/** One reader. Ends after the exit, or throws why the output cannot be read any longer. */
export class OutputFollower implements AsyncIterableIterator<AgentOutput> {
  readonly #offsets: readonly [number, number];
  readonly #shared: Shared;
  /** bytes of all streams before the next piece */
  position: number;
  /** when it last asked for more */
  readAt = performance.now();
  #waiter: Deferred<void> | undefined;
  #failure: AppError | undefined;
  #isClosed = false;

  constructor(offsets: readonly [number, number], position: number, shared: Shared) {
    this.#offsets = offsets;
    this.position = position;
    this.#shared = shared;
  }

  /** Whether it was ended because it held up others. */
  get hasStalled(): boolean {
    return this.#failure !== undefined;
  }

  /** How the process ended; undefined until everything before has been read, and after close(). */
  get exit(): AgentExit | undefined {
    const end = this.#shared.end();
    return end && "exit" in end && !this.#isClosed ? end.exit : undefined;
  }

  async next(): Promise<IteratorResult<AgentOutput>> {
    for (;;) {
      if (this.#failure) throw this.#failure;
      if (this.#isClosed) return { done: true, value: undefined };
      this.readAt = performance.now();
      const piece = this.#shared.pieceAt(this.position);
      if (piece) {
        this.position = piece.at + piece.bytes.length;
        this.#shared.moved();
        const value = this.#fresh(piece);
        if (value) return { done: false, value };
        continue;
      }
      const end = this.#shared.end();
      if (end && "error" in end) throw end.error;
      if (end) return { done: true, value: undefined };
      this.#waiter = createDeferred();
      // No deadline: the source watches over the guest.
      await this.#waiter.promise;
    }
  }

  /** Ends a waiting next(), too. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#shared.closed();
    this.wake();
  }

  fail(error: AppError): void {
    this.#failure = error;
    this.#shared.closed();
    this.wake();
  }

  async return(): Promise<IteratorResult<AgentOutput>> {
    this.close();
    return { done: true, value: undefined };
  }

  wake(): void {
    const waiter = this.#waiter;
    this.#waiter = undefined;
    waiter?.resolve();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The part of a piece from the asked offset on. */
  #fresh({ stream, offset, bytes }: Piece): AgentOutput | undefined {
    const wanted = this.#offsets[stream === 1 ? 0 : 1];
    if (offset >= wanted) return { stream, offset, bytes };
    if (offset + bytes.length <= wanted) return undefined;
    return { stream, offset: wanted, bytes: bytes.subarray(wanted - offset) };
  }
}
