/**
 * Flow control of the output streams of a guest process. Pure.
 *
 * Each stream has the offset of its next byte and its remaining credit; violations throw ProtocolError.
 */
import { ProtocolError } from "../errors.ts";
import type { OutputStreamNumber, PerStream } from "../wire/requests.ts";

interface StreamState {
  offset: number;
  credit: number;
  consumed: number;
  /** ATTACH may have requested bytes that are dropped or not there yet, so the first piece sets the offset */
  mayJump: boolean;
  eof: boolean;
}

export class OutputCredit {
  readonly #windowBytes: number;
  readonly #streams: Record<OutputStreamNumber, StreamState>;

  constructor(windowBytes: number, offsets: PerStream, mayJump: boolean) {
    this.#windowBytes = windowBytes;
    const stream = (offset: number): StreamState => ({
      offset,
      credit: windowBytes,
      consumed: 0,
      mayJump,
      eof: false,
    });
    this.#streams = { 1: stream(offsets[0]), 2: stream(offsets[1]), 3: stream(offsets[2]) };
  }

  /** Expected offset of the next byte of each stream. */
  get offsets(): PerStream {
    return [this.#streams[1].offset, this.#streams[2].offset, this.#streams[3].offset];
  }

  receive(stream: OutputStreamNumber, offset: number, bytes: number): void {
    const state = this.#advance(stream, offset);
    if (bytes > state.credit) throw new ProtocolError(`output beyond the credit of stream ${stream}`);
    state.credit -= bytes;
    state.offset += bytes;
  }

  receiveEof(stream: OutputStreamNumber, offset: number): void {
    this.#advance(stream, offset).eof = true;
  }

  /** Counts consumed bytes. Returns the credit to send now, at least a quarter of the window, or 0. */
  consume(stream: OutputStreamNumber, bytes: number): number {
    const state = this.#streams[stream];
    state.consumed += bytes;
    const given = state.consumed;
    if (given < this.#windowBytes / 4 || state.eof) return 0;
    state.consumed = 0;
    state.credit += given;
    return given;
  }

  #advance(stream: OutputStreamNumber, offset: number): StreamState {
    const state = this.#streams[stream];
    if (state.eof) throw new ProtocolError(`output after the end of stream ${stream}`);
    if (offset !== state.offset && !state.mayJump) {
      throw new ProtocolError(`offset ${offset} of stream ${stream} where ${state.offset} follows`);
    }
    state.mayJump = false;
    state.offset = offset;
    return state;
  }
}
