/** Reads a stream in pieces of the length that the caller wants. */
import { badArchive } from "../format/bad-archive.ts";

export class ByteReader implements AsyncDisposable {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array();
  /** bytes that were read so far */
  position = 0;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  /** At most `most` bytes, at least one; undefined at the end. */
  async some(most: number): Promise<Uint8Array | undefined> {
    while (this.#rest.length === 0) {
      const { value, done } = await this.#source.next();
      if (done === true) return undefined;
      this.#rest = value;
    }
    const piece = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(piece.length);
    this.position += piece.length;
    return piece;
  }

  /** Exactly so many bytes. Throws if the stream ends before. */
  async exactly(length: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(length);
    let done = 0;
    for await (const piece of this.pieces(length)) {
      bytes.set(piece, done);
      done += piece.length;
    }
    return bytes;
  }

  /** So many bytes, piece by piece. */
  async *pieces(length: number): AsyncGenerator<Uint8Array> {
    for (let left = length; left > 0;) {
      const piece = await this.some(left);
      if (!piece) throw badArchive(`it ends after ${this.position} bytes, in the middle of an entry`);
      left -= piece.length;
      yield piece;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#source.return?.();
  }
}
