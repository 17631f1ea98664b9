/**
 * Server streams of Connect. A stream answers 200 even if it fails: its last frame says why. The source is read
 * at the pace of the client.
 */
import type { ServerResponse } from "node:http";
import { drained } from "@forkd/base";
import { AppError, toAppError } from "@forkd/contract";
import { connectError } from "./codes.ts";
import { endFrame, messageFrame } from "./frames.ts";

export type StreamOptions = {
  /** fires when the client has gone */
  readonly signal: AbortSignal;
  /** the stream fails with `deadline_exceeded` after it */
  readonly timeoutMs?: number | undefined;
  readonly keepaliveMs: number;
  /** the message that keeps a silent stream open */
  readonly keepalive: object;
  /** whether the connection has to break instead of ending with a frame */
  readonly breaksOn: (error: AppError) => boolean;
};

/** Node takes larger delays for 1 ms. */
const maxDelayMs = 2 ** 31 - 1;

/**
 * Sends what the source yields. `open` gets a signal that fires when no client reads any more; the source has to
 * end then. Resolves with the failure, if there was one.
 */
export async function sendStream(
  outgoing: ServerResponse,
  open: (signal: AbortSignal) => Promise<AsyncIterable<object>>,
  options: StreamOptions,
): Promise<AppError | undefined> {
  const stop = new AbortController();
  const gone = () => stop.abort(new AppError("cancelled", "The client has gone"));
  options.signal.addEventListener("abort", gone, { once: true });
  if (options.signal.aborted) gone();
  const { timeoutMs } = options;
  const late = () =>
    stop.abort(new AppError("deadline_exceeded", `The stream has lasted its ${timeoutMs} ms`));
  const deadline = timeoutMs && setTimeout(late, Math.min(timeoutMs, maxDelayMs));
  outgoing.writeHead(200, { "content-type": "application/connect+json" });
  outgoing.flushHeaders();
  const writer = new FrameWriter(outgoing, options);
  try {
    await unlessStopped(copy(await open(stop.signal), writer, stop.signal), stop.signal);
    writer.end(endFrame());
    return undefined;
  } catch (error) {
    const failure = toAppError(stop.signal.aborted ? stop.signal.reason : error);
    if (options.signal.aborted || options.breaksOn(failure)) outgoing.destroy();
    else writer.end(endFrame(connectError(failure)));
    return options.signal.aborted ? undefined : failure;
  } finally {
    clearTimeout(deadline);
    options.signal.removeEventListener("abort", gone);
    stop.abort();
    writer.stop();
  }
}

async function copy(source: AsyncIterable<object>, writer: FrameWriter, signal: AbortSignal): Promise<void> {
  for await (const message of source) {
    if (signal.aborted) return;
    await writer.write(messageFrame(message));
  }
}

/** The deadline does not wait for a source that takes its time to end. */
function unlessStopped(work: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stopped = () => reject(toAppError(signal.reason));
    signal.addEventListener("abort", stopped, { once: true });
    if (signal.aborted) stopped();
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stopped));
  });
}

class FrameWriter {
  readonly #outgoing: ServerResponse;
  readonly #keepalive: Buffer;
  readonly #everyMs: number;
  #silence: NodeJS.Timeout | undefined;

  constructor(outgoing: ServerResponse, { keepaliveMs, keepalive }: StreamOptions) {
    this.#outgoing = outgoing;
    this.#keepalive = messageFrame(keepalive);
    this.#everyMs = Math.min(keepaliveMs, maxDelayMs);
  }

  async write(frame: Buffer): Promise<void> {
    // Not before: clients expect that the first message is the one that says that the work has begun.
    this.#silence ??= setInterval(() => this.#keepOpen(), this.#everyMs);
    this.#silence.refresh();
    if (!this.#outgoing.write(frame)) await drained(this.#outgoing);
  }

  #keepOpen(): void {
    if (!this.#outgoing.writableNeedDrain && !this.#outgoing.destroyed) this.#outgoing.write(this.#keepalive);
  }

  end(frame: Buffer): void {
    this.stop();
    if (!this.#outgoing.destroyed) this.#outgoing.end(frame);
  }

  stop(): void {
    clearInterval(this.#silence);
  }
}
