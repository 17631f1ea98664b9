/** Answers that are not streams. */
import type { IncomingMessage, ServerResponse } from "node:http";

/** How long a client may take to read the end of its answer and to stop sending. */
const lingerMs = 5_000;

type Exchange = { readonly incoming: IncomingMessage; readonly outgoing: ServerResponse };

export function sendJson({ incoming, outgoing }: Exchange, status: number, body: unknown): void {
  const text = JSON.stringify(body);
  outgoing.writeHead(status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
    ...closing(incoming),
  });
  finish({ incoming, outgoing }, text);
}

export function sendText({ incoming, outgoing }: Exchange, status: number, text: string): void {
  // Some clients show the reason of the status and not the body.
  if (status >= 400) outgoing.statusMessage = text.replace(/[^ -~]/g, "?").slice(0, 200);
  outgoing.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(text),
    ...closing(incoming),
  });
  finish({ incoming, outgoing }, text);
}

export function sendEmpty({ incoming, outgoing }: Exchange, status: number): void {
  outgoing.writeHead(
    status,
    status === 204 ? closing(incoming) : { "content-length": 0, ...closing(incoming) },
  );
  finish({ incoming, outgoing });
}

/** The next request on the connection would begin inside a body that was not read. */
function closing(incoming: IncomingMessage): { connection?: "close" } {
  return incoming.complete || hasNoBody(incoming) ? {} : { connection: "close" };
}

function hasNoBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] === undefined && (headers["content-length"] ?? "0") === "0";
}

function finish({ incoming, outgoing }: Exchange, text?: string): void {
  outgoing.end(text);
  if (incoming.complete) return;
  // A client that still sends reads the answer only after that; closing at once would reset its connection.
  incoming.resume();
  const cut = setTimeout(() => outgoing.destroy(), lingerMs).unref();
  outgoing.once("close", () => clearTimeout(cut));
}
