/**
 * Events → server-sent events. A client that does not read keeps no events in memory: the listener has a
 * position in the bus and no queue. When the bus drops events that the client has not seen, the stream says
 * so and ends.
 */
import type { ServerResponse } from "node:http";
import { toAppError, type AppError, type ForkdEvent } from "@forkd/contract";
import type { Listener } from "@forkd/runtime";
import { closeSoon } from "./close-soon.ts";

const keepAliveMs = 15_000;

export async function sendEvents(
  outgoing: ServerResponse,
  listener: Listener,
  { signal, ...options }: { signal: AbortSignal; keepAliveMs?: number },
): Promise<AppError | undefined> {
  outgoing.writeHead(200, {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    // The connection ends with the stream and takes no further request.
    connection: "close",
  });
  // The first bytes show the client that no later event is missed.
  outgoing.write(": listening\n\n");
  const alive = setInterval(() => {
    if (!outgoing.writableNeedDrain) outgoing.write(": keep-alive\n\n");
  }, options.keepAliveMs ?? keepAliveMs);
  const events = listener[Symbol.asyncIterator]();
  const stop = () => void events.return?.();
  outgoing.once("close", stop);
  let last = "";
  try {
    while (!outgoing.destroyed) {
      const { done, value } = await events.next();
      if (done || outgoing.destroyed) break;
      last = value.id;
      if (!outgoing.write(frameOf(value))) await writable(outgoing, [listener.overflowed, signal]);
    }
    if (outgoing.destroyed) return undefined;
    const revoked = signal.aborted ? toAppError(signal.reason) : undefined;
    outgoing.end(revoked && frameOf(revocation(last, revoked)));
    closeSoon(outgoing);
    return revoked;
  } catch (error) {
    outgoing.destroy();
    return toAppError(error);
  } finally {
    clearInterval(alive);
    outgoing.off("close", stop);
    await events.return?.();
  }
}

export function frameOf(event: ForkdEvent): string {
  return `id: ${event.id}\nevent: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
}

/** About one stream, not an event of the bus. Its id is that of the last event before it. */
function revocation(id: string, { message }: AppError): ForkdEvent {
  return { id, type: "revoked", at_unix: Date.now() / 1000, reason: message };
}

/** Resolves when the client has read, when the stream must end, or when the client has gone. */
function writable(outgoing: ServerResponse, endings: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      outgoing.off("drain", done);
      outgoing.off("close", done);
      for (const ending of endings) ending.removeEventListener("abort", done);
      resolve();
    };
    outgoing.once("drain", done);
    outgoing.once("close", done);
    for (const ending of endings) ending.addEventListener("abort", done, { once: true });
    if (endings.some(({ aborted }) => aborted)) done();
  });
}
