/**
 * Output of a kernel between two evals, for instance of a thread that outlives its eval. The next eval gets it
 * before its own. Only the last bytes are kept, because there may never be a next eval.
 */
const keptBytes = 64 * 1024;
const keptPieces = 256;

export interface TakenOutput {
  readonly pieces: readonly Piece[];
  readonly lostBytes: number;
}

type Piece = { readonly stream: 1 | 2; readonly bytes: Buffer };

export class StrayOutput {
  #pieces: Piece[] = [];
  #bytes = 0;
  #lost = 0;

  push(stream: 1 | 2, bytes: Buffer): void {
    const last = this.#pieces.at(-1);
    // Joined, so that a guest that sends single bytes does not cost an object for each.
    if (last?.stream === stream)
      this.#pieces[this.#pieces.length - 1] = { stream, bytes: Buffer.concat([last.bytes, bytes]) };
    else this.#pieces.push({ stream, bytes: Buffer.from(bytes) });
    this.#bytes += bytes.length;
    while (this.#bytes > keptBytes || this.#pieces.length > keptPieces) this.#dropOldest();
  }

  /** Drops the oldest piece, or as much of it as has to go. */
  #dropOldest(): void {
    const [first] = this.#pieces;
    if (!first) return;
    const isWhole = this.#pieces.length > keptPieces || this.#bytes - first.bytes.length >= keptBytes;
    const dropped = isWhole ? first.bytes.length : this.#bytes - keptBytes;
    if (isWhole) this.#pieces.shift();
    else this.#pieces[0] = { stream: first.stream, bytes: Buffer.from(first.bytes.subarray(dropped)) };
    this.#bytes -= dropped;
    this.#lost += dropped;
  }

  /** Empties it. */
  take(): TakenOutput {
    const taken = { pieces: this.#pieces, lostBytes: this.#lost };
    this.#pieces = [];
    this.#bytes = 0;
    this.#lost = 0;
    return taken;
  }
}
