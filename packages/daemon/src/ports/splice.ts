/** Joins two connections: bytes, ends of each direction, and failures pass from one to the other. */
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";

/** How long one direction may be open and silent after the other one has ended */
const halfOpenMs = 600_000;

type SpliceOptions = {
  /** called for every piece */
  readonly onBytes: () => void;
  /** closes both */
  readonly signal: AbortSignal;
};

/** Resolves when both are closed. Never rejects. */
export function splice(left: Duplex, right: Duplex, { onBytes, signal }: SpliceOptions): Promise<void> {
  return new Promise((resolve) => {
    let open = 2;
    let timer: NodeJS.Timeout | undefined;
    const cut = () => {
      left.destroy();
      right.destroy();
    };
    const seen = () => {
      timer?.refresh();
      onBytes();
    };
    const join = (from: Duplex, to: Duplex) => {
      const closed = () => {
        // What `from` sent before its end may still be on its way.
        if (!from.readableEnded) reset(to);
        else if (to.writableFinished) to.destroy();
        else to.once("finish", () => to.destroy());
        open--;
        if (open > 0) return;
        clearTimeout(timer);
        signal.removeEventListener("abort", cut);
        resolve();
      };
      // A client or a guest that has gone is not a failure of the daemon.
      from.on("error", () => undefined);
      from.on("data", seen);
      from.once("end", () => (timer ??= setTimeout(cut, halfOpenMs).unref()));
      if (from.closed) closed();
      else from.once("close", closed);
      from.pipe(to);
    };
    signal.addEventListener("abort", cut, { once: true });
    join(left, right);
    join(right, left);
    if (signal.aborted) cut();
  });
}

/** The peer sees a failure, not an end, where the kind of connection can tell them apart. */
function reset(stream: Duplex): void {
  const isTcp = stream instanceof Socket && !(stream instanceof TLSSocket);
  if (isTcp && !stream.destroyed && stream.remoteAddress !== undefined) stream.resetAndDestroy();
  else stream.destroy();
}
