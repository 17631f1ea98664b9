/** AppError → status and body. Nothing else does this. */
import type { ServerResponse } from "node:http";
import { errorCodes, toErrorBody, type AppError } from "@forkd/contract";

/**
 * Destroys the connection if an answer has begun: it cannot get another status, and the client must notice.
 */
export function sendError(outgoing: ServerResponse, error: AppError, requestId: string): void {
  if (outgoing.headersSent || outgoing.destroyed) {
    outgoing.destroy();
    return;
  }
  const text = JSON.stringify(toErrorBody(error, requestId));
  const allow = error.code === "method_not_allowed" ? error.details["allow"] : undefined;
  const wait =
    error.code === "rate_limited" || error.code === "capacity_exhausted"
      ? error.details["retry_after_secs"]
      : undefined;
  outgoing.writeHead(errorCodes[error.code].status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(text),
    ...(typeof allow === "string" && { allow }),
    ...(typeof wait === "number" && { "retry-after": String(wait) }),
    ...(error.code === "unauthenticated" && { "www-authenticate": "Bearer" }),
  });
  outgoing.end(text);
}
