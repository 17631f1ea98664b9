/**
 * The host's end of an input stream of a guest process. Sends at most one window ahead of the process's
 * reads.
 *
 * A write within the window is sent during the call, so that a command and its first input share one packet.
 */
import { createDeferred, type Deferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { ProtocolError } from "../errors.ts";
import { encodeInput, encodeInputEof, maxInputBytes, type InputStreamNumber } from "../wire/requests.ts";

/** Bytes that the host may send ahead; fixed by the protocol. */
const windowBytes = 65_536;

export interface FrameSink {
  readonly isFull: boolean;
  send(frame: Buffer): void;
}

interface PendingWrite {
  /** undefined for the end of the stream */
  bytes: Uint8Array | undefined;
  /** some of it has been sent */
  begun: boolean;
  readonly done: Deferred<void>;
}

export class InputStream {
  readonly #id: number;
  readonly #stream: InputStreamNumber;
  readonly #sink: FrameSink;
  #free: number;
  #pending: PendingWrite[] = [];
  #closed: Error | undefined;
  /** the process reads no more */
  #isShut = false;

  /** `usedBytes`: sent by an earlier attachment of the same connection, and not yet read by the process. */
  constructor(id: number, stream: InputStreamNumber, sink: FrameSink, usedBytes = 0) {
    this.#id = id;
    this.#stream = stream;
    this.#sink = sink;
    this.#free = windowBytes - usedBytes;
  }

  /** Bytes sent and not yet read by the process. */
  get usedBytes(): number {
    return windowBytes - this.#free;
  }

  /** Number of writes that are not sent completely. */
  get unsentWrites(): number {
    return this.#pending.length;
  }

  /** True while a write is partly sent. */
  get isCut(): boolean {
    return this.#pending[0]?.begun === true;
  }

  /** Resolves when all bytes are sent; rejects if the process ends first. */
  write(bytes: Uint8Array): Promise<void> {
    return this.#enqueue(bytes);
  }

  /** Sends the end of the stream. Does nothing if the process can read no more of it. */
  end(): Promise<void> {
    if (this.#isShut) return Promise.resolve();
    return this.#enqueue(undefined);
  }

  /** Handles INPUT_CLOSED: the process reads no more. */
  shut(): void {
    this.#isShut = true;
    const pending = this.#pending;
    this.#pending = [];
    for (const { bytes, done } of pending) {
      if (bytes === undefined) done.resolve();
      else done.reject(shutError(this.#id));
    }
  }

  /** Handles INPUT_CREDIT. */
  credit(bytes: number): void {
    if (bytes === 0 || bytes > this.usedBytes)
      throw new ProtocolError(`INPUT_CREDIT of ${bytes} bytes for ${this.usedBytes}`);
    this.#free += bytes;
    this.pump();
  }

  /** Rejects all pending and later writes. */
  close(reason: Error): void {
    this.#closed ??= reason;
    const pending = this.#pending;
    this.#pending = [];
    for (const { done } of pending) done.reject(this.#closed);
  }

  pump(): void {
    for (let head = this.#pending[0]; head !== undefined; head = this.#pending[0]) {
      if (head.bytes === undefined) {
        this.#sink.send(encodeInputEof(this.#id, this.#stream));
      } else if (head.bytes.length > 0) {
        const size = Math.min(head.bytes.length, this.#free, maxInputBytes);
        if (size === 0 || this.#sink.isFull) return;
        this.#free -= size;
        head.begun = true;
        this.#sink.send(encodeInput(this.#id, this.#stream, head.bytes.subarray(0, size)));
        head.bytes = head.bytes.subarray(size);
        if (head.bytes.length > 0) continue;
      }
      // send() may have ended the connection and emptied this queue.
      if (this.#pending[0] === head) this.#pending.shift();
      head.done.resolve();
    }
  }

  #enqueue(bytes: Uint8Array | undefined): Promise<void> {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.#isShut) return Promise.reject(shutError(this.#id));
    const done = createDeferred<void>();
    this.#pending.push({ bytes, begun: false, done });
    this.pump();
    return done.promise;
  }
}

function shutError(id: number): AppError {
  return new AppError("wrong_state", `Cannot write to process ${id}: its stdin is closed`, {
    details: { exec_id: id, stdin: "closed" },
  });
}
