/** Backpressure of a stream that this process writes to. */
import type { Writable } from "node:stream";

/** Resolves when the reader has taken what waits for it, or has gone. */
export function drained(outgoing: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      outgoing.off("drain", done);
      outgoing.off("close", done);
      resolve();
    };
    outgoing.once("drain", done);
    outgoing.once("close", done);
    if (outgoing.destroyed || !outgoing.writableNeedDrain) done();
  });
}
