/** A TCP connection inside the guest, as a Node stream. */
import { Duplex } from "node:stream";
import { createDeferred, type Deferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { AgentClient } from "./client.ts";
import { refusal } from "./errors.ts";
import { OutputTail } from "./process/output-tail.ts";
import type { AgentProcess } from "./process/process.ts";
import type { AgentOutput } from "./wire/replies.ts";

/**
 * Connects to a port of the guest. Returns at once; if the connection is refused, the stream is destroyed
 * with `guest_refused`. Ending the writable side half-closes; destroying the stream kills the connection.
 */
export function connectTcp(client: AgentClient, port: number, host?: string): Duplex {
  return new GuestSocket(client, port, host);
}

class GuestSocket extends Duplex {
  readonly #process: AgentProcess;
  readonly #stderr = new OutputTail();
  /** resolves when the reader wants more; until then the guest gets no new credit */
  #paused: Deferred<void> | undefined;
  #ended = false;
  #connected = false;
  #eof = false;

  constructor(client: AgentClient, port: number, host: string | undefined) {
    super({ allowHalfOpen: true });
    this.#process = client.start(
      { kind: "connect", port, stdin: true, ...(host !== undefined && { path: host }) },
      {
        onOutput: (output) => this.#receive(output),
        onEof: (stream) => {
          // Before the connection is established, the end of stream 1 means that the attempt failed, and the
          // exit says why. But "connected" on stream 2 may arrive after the end of stream 1.
          if (stream !== 1) return;
          this.#eof = true;
          if (this.#connected) this.#endReading();
        },
      },
    );
    this.#process.exit.then(
      (exit) => {
        this.#process.forget();
        if (exit.code === 0) return this.#endReading();
        const text = this.#stderr
          .text()
          .replace(/^connected\n/, "")
          .trim();
        const action = `connect to port ${port} of the guest`;
        this.destroy(
          exit.code === undefined
            ? new AppError("guest_refused", `Cannot ${action}: killed by signal ${exit.signal}`)
            : refusal(action, exit.code, text),
        );
      },
      (error: unknown) => this.destroy(error instanceof Error ? error : new Error(String(error))),
    );
  }

  override _read(): void {
    const paused = this.#paused;
    this.#paused = undefined;
    paused?.resolve();
  }

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#process.write(bytes).then(() => done(), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    // If the peer has closed both directions, there is nothing to half-close.
    this.#process.end().then(
      () => done(),
      (error: unknown) =>
        done(error instanceof AppError && error.code === "wrong_state" ? null : toError(error)),
    );
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#paused?.resolve();
    this.#process[Symbol.asyncDispose]().then(
      () => done(error),
      () => done(error),
    );
  }

  #receive({ stream, bytes }: AgentOutput): void | Promise<void> {
    if (stream !== 1) {
      this.#stderr.push(bytes);
      if (!this.#connected && this.#stderr.text().startsWith("connected\n")) {
        this.#connected = true;
        this.emit("connect");
        if (this.#eof) this.#endReading();
      }
      return;
    }
    if (this.#ended || this.destroyed || this.push(bytes)) return;
    this.#paused ??= createDeferred();
    return this.#paused.promise;
  }

  #endReading(): void {
    if (this.#ended || this.destroyed) return;
    this.#ended = true;
    this.push(null);
  }
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
