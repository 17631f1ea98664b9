/** Reads a stream in pieces of a known length. */
import { TarFault } from "./header.ts";

export class ByteReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #chunk: Buffer = Buffer.alloc(0);
  /** bytes that were read */
  position = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** Exactly `length` bytes; undefined if the stream has ended. */
  async read(length: number): Promise<Buffer | undefined> {
    if (this.#chunk.length >= length) return this.#take(length);
    const pieces: Buffer[] = [];
    let missing = length;
    while (missing > 0) {
      if (this.#chunk.length === 0 && !(await this.#next())) {
        if (missing === length) return undefined;
        throw new TarFault("it ends too early");
      }
      const piece = this.#take(Math.min(missing, this.#chunk.length));
      pieces.push(piece);
      missing -= piece.length;
    }
    return Buffer.concat(pieces);
  }

  /** The next `length` bytes, as they come. They must be read before anything else. */
  async *pieces(length: number): AsyncGenerator<Buffer> {
    let missing = length;
    while (missing > 0) {
      if (this.#chunk.length === 0 && !(await this.#next())) throw new TarFault("it ends too early");
      const piece = this.#take(Math.min(missing, this.#chunk.length));
      missing -= piece.length;
      yield piece;
    }
  }

  async skip(length: number): Promise<void> {
    let missing = length;
    while (missing > 0) {
      if (this.#chunk.length === 0 && !(await this.#next())) throw new TarFault("it ends too early");
      missing -= this.#take(Math.min(missing, this.#chunk.length)).length;
    }
  }

  /** Reads to the end of the stream. */
  async drain(): Promise<void> {
    do this.#take(this.#chunk.length);
    while (await this.#next());
  }

  #take(length: number): Buffer {
    const piece = this.#chunk.subarray(0, length);
    this.#chunk = this.#chunk.subarray(length);
    this.position += length;
    return piece;
  }

  async #next(): Promise<boolean> {
    const { value, done } = await this.#source.next();
    if (done) return false;
    this.#chunk = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return true;
  }
}
