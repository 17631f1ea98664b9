/** The raw bytes of an upload. */
import type { IncomingMessage } from "node:http";
import { clientLeft } from "./json-body.ts";

/**
 * Reads and drops what `use` leaves unread, so that the client can finish writing and then read the answer.
 */
export async function withContent<T>(
  incoming: IncomingMessage,
  use: (content: AsyncIterable<Uint8Array>) => T | Promise<T>,
): Promise<T> {
  try {
    return await use(contentOf(incoming));
  } finally {
    if (!incoming.readableEnded) incoming.resume();
  }
}

/** Reading a body fails only because the client stops sending it. */
async function* contentOf(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    yield* incoming.iterator({ destroyOnReturn: false });
  } catch (error) {
    throw clientLeft(error);
  }
}
