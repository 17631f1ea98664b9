/** Answers that are not streams. They may come before the whole request has arrived. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** How much of a request that has its answer is read and dropped, and for how long */
type Linger = { readonly bytes: number; readonly ms: number };
const usualLinger: Linger = { bytes: 64 * 1024 * 1024, ms: 10_000 };

type Exchange = { readonly outgoing: ServerResponse };
type Headers = Readonly<Record<string, string | number>>;

export function sendJson({ outgoing }: Exchange, status: number, body: unknown): void {
  sendWhole(outgoing, {
    status,
    headers: { "content-type": "application/json" },
    text: JSON.stringify(body),
  });
}

export function sendText({ outgoing }: Exchange, status: number, text: string): void {
  // Some clients show the reason of the status and not the body.
  if (status >= 400) outgoing.statusMessage = text.replace(/[^ -~]/g, "?").slice(0, 200);
  sendWhole(outgoing, { status, headers: { "content-type": "text/plain; charset=utf-8" }, text });
}

export function sendEmpty({ outgoing }: Exchange, status: number): void {
  sendWhole(outgoing, { status });
}

type Whole = { readonly status: number; readonly headers?: Headers; readonly text?: string | undefined };

/** Sends the answer and ends it. If the request is still arriving, closes the connection after it. */
export function sendWhole(
  outgoing: ServerResponse,
  { status, headers = {}, text }: Whole,
  linger = usualLinger,
): void {
  // Clients parse an answer without a length as JSON, except 204, which has no body by its nature.
  const length =
    text === undefined && status === 204 ? {} : { "content-length": Buffer.byteLength(text ?? "") };
  const incoming = outgoing.req;
  if (incoming.complete || hasNoBody(incoming)) {
    outgoing.writeHead(status, { ...length, ...headers }).end(text);
    return;
  }
  // The next request on the connection would begin inside a body that was not read.
  outgoing.writeHead(status, { ...length, ...headers, connection: "close" }).flushHeaders();
  if (text !== undefined) outgoing.write(text);
  endAfterRequest(outgoing, linger);
}

function hasNoBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] === undefined && (headers["content-length"] ?? "0") === "0";
}

/**
 * Node closes the connection at the end of the answer. A client that still sends would then get a reset, and
 * may lose the answer to it.
 */
function endAfterRequest(outgoing: ServerResponse, { bytes, ms }: Linger): void {
  const incoming = outgoing.req;
  let left = bytes;
  incoming.on("data", (piece: Buffer) => {
    left -= piece.length;
    if (left < 0) outgoing.destroy();
  });
  incoming.once("end", () => outgoing.end());
  const cut = setTimeout(() => outgoing.destroy(), ms).unref();
  outgoing.once("close", () => clearTimeout(cut));
  incoming.resume();
}
