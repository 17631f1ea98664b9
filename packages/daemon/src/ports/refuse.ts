/** Errors of the daemon about a port: JSON for programs, short text for people who look with a browser. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { errorCodes, httpRemedy, type AppError } from "@forkd/contract";
import { sendError } from "../http/answer/error.ts";

export function refusePort(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  error: AppError,
  requestId: string,
): void {
  if (outgoing.headersSent || outgoing.destroyed || !wantsText(incoming.headers.accept))
    return sendError(outgoing, error, requestId);
  const { status } = errorCodes[error.code];
  const lines = [
    `${error.message}.`,
    ...(error.remedy ? [httpRemedy(error.remedy)] : []),
    "",
    `forkd: ${error.code} (${status}), request ${requestId}`,
  ];
  const text = `${lines.join("\n")}\n`;
  outgoing.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(text),
    "cache-control": "no-store",
  });
  outgoing.end(text);
}

function wantsText(accept = ""): boolean {
  return /\btext\/(?:html|plain)\b/i.test(accept) && !/\bapplication\/json\b/i.test(accept);
}
