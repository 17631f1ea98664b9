/** Cuts a stream of text into lines. Holds the line that has not ended yet, up to `maxLength` characters. */
export class LineSplitter {
  readonly #maxLength: number;
  readonly #ends: RegExp;
  #rest = "";

  /** `ends` separates lines; a run of several line ends may count as one. */
  constructor(options: { maxLength: number; ends?: RegExp }) {
    this.#maxLength = options.maxLength;
    this.#ends = options.ends ?? /\n/;
  }

  /** The lines that end in this chunk. */
  push(chunk: string): string[] {
    // Only the chunk is searched: the rest has no line end.
    const lines = chunk.split(this.#ends);
    lines[0] = this.#rest + (lines[0] ?? "");
    this.#rest = lines.pop() ?? "";
    return lines;
  }

  /** The unfinished line is longer than allowed; the caller decides what that means. */
  get isTooLong(): boolean {
    return this.#rest.length > this.#maxLength;
  }

  /** The unfinished line. Clears it. */
  takeRest(): string {
    const rest = this.#rest;
    this.#rest = "";
    return rest;
  }
}
