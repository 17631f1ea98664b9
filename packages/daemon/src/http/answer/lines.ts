/**
 * An async iterable → the chunks of an answer, each flushed at once, read only as fast as the client reads.
 *
 * When the client closes the connection, return() ends the iterable. A generator that waits inside next()
 * sees return() only after that wait, so its source must also obey the signal of the request.
 */
import type { ServerResponse } from "node:http";
import { drained, stringifyJson } from "@forkd/base";
import { toAppError, toErrorBody, type AppError } from "@forkd/contract";
import { isOnePiece, jsonPieces } from "./json-pieces.ts";

type StreamOptions = {
  status: number;
  requestId: string;
  /** of the request; a client that still reads gets its reason as the failure */
  signal: AbortSignal;
};

/** Lines of JSON. A failure becomes a last line `{type: "error", …}`, and is returned for the log. */
export async function sendLines(
  outgoing: ServerResponse,
  events: AsyncIterable<unknown>,
  options: StreamOptions,
): Promise<AppError | undefined> {
  begin(outgoing, options.status, "application/x-ndjson");
  try {
    await pump(outgoing, events, options.signal, lineOf);
    if (!outgoing.destroyed) outgoing.end();
    return undefined;
  } catch (error) {
    const failure = toAppError(options.signal.aborted ? options.signal.reason : error);
    const last = `${JSON.stringify({ type: "error", ...toErrorBody(failure, options.requestId) })}\n`;
    if (!outgoing.destroyed) outgoing.end(last);
    return failure;
  }
}

/** Raw bytes. A failure destroys the connection: the client would take any other sign for content. */
export async function sendBytes(
  outgoing: ServerResponse,
  chunks: AsyncIterable<Uint8Array>,
  options: StreamOptions,
): Promise<AppError | undefined> {
  begin(outgoing, options.status, "application/octet-stream");
  try {
    await pump(outgoing, chunks, options.signal, (chunk) => [chunk]);
    if (!outgoing.destroyed) outgoing.end();
    return undefined;
  } catch (error) {
    outgoing.destroy();
    return toAppError(options.signal.aborted ? options.signal.reason : error);
  }
}

/** Most events are short and leave in one write; the result of an eval may be long. */
function* lineOf(event: unknown): Generator<string> {
  if (isOnePiece(event)) return yield `${stringifyJson(event)}\n`;
  yield* jsonPieces(event);
  yield "\n";
}

function begin(outgoing: ServerResponse, status: number, type: string): void {
  outgoing.writeHead(status, {
    "content-type": type,
    "cache-control": "no-store",
    "x-accel-buffering": "no",
  });
  outgoing.flushHeaders();
}

async function pump<T>(
  outgoing: ServerResponse,
  source: AsyncIterable<T>,
  signal: AbortSignal,
  encode: (item: T) => Iterable<string | Uint8Array>,
): Promise<void> {
  const iterator = source[Symbol.asyncIterator]();
  const end = () => Promise.resolve(iterator.return?.()).catch(() => undefined);
  let exhausted = false;
  const onClose = () => void end();
  outgoing.once("close", onClose);
  try {
    while (!outgoing.destroyed) {
      const { done, value } = await iterator.next();
      exhausted = done === true;
      // After an abort, what the iterable ends or fails with is only a consequence.
      if (!outgoing.destroyed) signal.throwIfAborted();
      if (done) return;
      for (const piece of encode(value))
        if (!outgoing.destroyed && !outgoing.write(piece)) await drained(outgoing);
    }
  } finally {
    outgoing.off("close", onClose);
    if (!exhausted) await end();
  }
}
