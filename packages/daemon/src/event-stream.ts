/**
 * Events → server-sent events. A client that does not read holds no events: the listener has a place in the bus and no queue, and
 * when what it has not seen is gone it is told so and cut off.
 */
import type { ServerResponse } from "node:http";
import { toAppError, type AppError, type ForkdEvent } from "@forkd/contract";
import type { Listener } from "@forkd/runtime";

const keepAliveMs = 15_000;
/** A client that was told that it is too slow may take this long to read that */
const farewellMs = 5_000;

export async function sendEvents(
  outgoing: ServerResponse,
  listener: Listener,
  options: { keepAliveMs?: number } = {},
): Promise<AppError | undefined> {
  outgoing.writeHead(200, {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
    // It is over when the stream is: nobody waits for another request on it.
    connection: "close",
  });
  // The first bytes tell a client that it is heard from now on.
  outgoing.write(": listening\n\n");
  const alive = setInterval(() => {
    if (!outgoing.writableNeedDrain) outgoing.write(": keep-alive\n\n");
  }, options.keepAliveMs ?? keepAliveMs);
  const events = listener[Symbol.asyncIterator]();
  const stop = () => void events.return?.();
  outgoing.once("close", stop);
  try {
    while (!outgoing.destroyed) {
      const { done, value } = await events.next();
      if (done || outgoing.destroyed) break;
      if (!outgoing.write(frameOf(value))) await writable(outgoing, listener.overflowed);
    }
    if (!outgoing.destroyed) {
      outgoing.end();
      // One that reads nothing would keep its connection for ever.
      const cut = setTimeout(() => outgoing.destroy(), farewellMs);
      cut.unref();
      outgoing.once("close", () => clearTimeout(cut));
    }
    return undefined;
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

/** Until the client has read, or has fallen so far behind that it is to be told, or has gone. */
function writable(outgoing: ServerResponse, overflowed: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      outgoing.off("drain", done);
      outgoing.off("close", done);
      overflowed.removeEventListener("abort", done);
      resolve();
    };
    outgoing.once("drain", done);
    outgoing.once("close", done);
    overflowed.addEventListener("abort", done, { once: true });
    if (overflowed.aborted) done();
  });
}
