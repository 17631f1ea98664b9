/** Reads the first bytes of a guest's connection without consuming them. */
import type net from "node:net";
import { maxPeekBytes, sniff, type Sniffed } from "./sniff.ts";

/** A client that sends nothing for this long lets the server speak first. */
const silenceMs = 200;
const peekMs = 10_000;

export type Peeked = {
  readonly head: Buffer;
  readonly what: Exclude<Sniffed, { kind: "more" }> | { readonly kind: "silent" } | { readonly kind: "gone" };
};

/**
 * What the bytes so far are. `silent`: the guest has sent nothing; only if `maySilent`. `gone`: it has closed the connection
 * or was too slow. The bytes are put back into the socket, which is paused. If the guest has ended its side already
 * they cannot be put back and are in `head`.
 */
export function peek(
  socket: net.Socket,
  { maySilent, deadlineMs = peekMs }: { maySilent: boolean; deadlineMs?: number },
): Promise<Peeked> {
  let head: Buffer = Buffer.alloc(0);
  return new Promise((resolve) => {
    let silence: NodeJS.Timeout | undefined;
    let deadline: NodeJS.Timeout | undefined;
    const finish = (what: Peeked["what"]): void => {
      clearTimeout(silence);
      clearTimeout(deadline);
      socket.off("readable", onReadable).off("end", onEnd).off("close", onEnd).off("error", onEnd);
      // In the same turn as the read: after it the stream may count as ended.
      const canPutBack = head.length > 0 && !socket.readableEnded && !socket.destroyed;
      if (canPutBack) socket.unshift(head);
      resolve({ head: canPutBack ? Buffer.alloc(0) : head, what });
    };
    const onEnd = (): void => finish(head.length === 0 ? { kind: "gone" } : lastWord(sniff(head)));
    const look = (): boolean => {
      const what = sniff(head);
      if (what.kind !== "more") finish(what);
      else if (head.length >= maxPeekBytes) finish({ kind: "raw" });
      else return false;
      return true;
    };
    const onReadable = (): void => {
      clearTimeout(silence);
      for (let chunk = read(socket); chunk; chunk = read(socket)) {
        head = Buffer.concat([head, chunk]);
        if (look()) return;
      }
      silence = setTimeout(onSilence, silenceMs);
    };
    const onSilence = (): void => {
      const what = sniff(head);
      if (what.kind !== "more" || !what.orRaw) return;
      if (head.length > 0) finish({ kind: "raw" });
      else if (maySilent) finish({ kind: "silent" });
    };
    if (socket.destroyed || socket.readableEnded) {
      onEnd();
      return;
    }
    socket.on("readable", onReadable).on("end", onEnd).on("close", onEnd).on("error", onEnd);
    if (Number.isFinite(deadlineMs)) deadline = setTimeout(onEnd, deadlineMs);
    onReadable();
  });
}

/** No more bytes follow. */
function lastWord(what: Sniffed): Peeked["what"] {
  if (what.kind !== "more") return what;
  return what.orRaw ? { kind: "raw" } : { kind: "malformed", reason: "the connection ended too early" };
}

function read(socket: net.Socket): Buffer | null {
  return socket.read() as Buffer | null;
}
