/** Answers of the control plane: JSON, and errors in the form that E2B's clients parse. */
import type { ServerResponse } from "node:http";
import { AppError, errorCodes, httpRemedy, type ErrorCode } from "@forkd/contract";
import { sendWhole } from "../http/answer.ts";

export type Answer = {
  readonly status: number;
  /** absent: no body */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
};

export function sendAnswer(outgoing: ServerResponse, { status, body, headers = {} }: Answer): void {
  if (body === undefined) return sendWhole(outgoing, { status, headers });
  const all = { "content-type": "application/json", ...headers };
  sendWhole(outgoing, { status, headers: all, text: JSON.stringify(body) });
}

/** Statuses that E2B's clients expect where forkd's own API has others. */
const statuses: Partial<Record<ErrorCode, number>> = {
  // A sandbox that ended does not exist for E2B's clients.
  sandbox_dead: 404,
  // A field or a value that is not supported is a mistake of the request.
  unsupported: 400,
};

export function statusOf({ code }: AppError): number {
  return statuses[code] ?? errorCodes[code].status;
}

/** Both clients read `code`, a number, and `message` from the body of every error. */
export function errorBody(error: AppError): { code: number; message: string; error_code: string } {
  const remedy = error.remedy ? ` ${httpRemedy(error.remedy)}` : "";
  return { code: statusOf(error), message: `${error.message}.${remedy}`, error_code: error.code };
}

/** Destroys the connection if an answer has begun. */
export function sendFailure(outgoing: ServerResponse, error: AppError): void {
  if (outgoing.headersSent || outgoing.destroyed) {
    outgoing.destroy();
    return;
  }
  const body = errorBody(error);
  // E2B's clients repeat a request after 429 if the header names the seconds.
  const wait = body.code === 429 ? error.details["retry_after_secs"] : undefined;
  const headers = typeof wait === "number" ? { "retry-after": String(wait) } : undefined;
  sendAnswer(outgoing, { status: body.code, body, headers });
}

/** For a field of E2B's API that has no counterpart here. */
export function unsupported(field: string, why: string): AppError {
  return new AppError("unsupported", `${field} is not supported: ${why}`, { details: { field } });
}

export function invalid(field: string, why: string): AppError {
  return new AppError("invalid_request", `Invalid request: ${field}: ${why}`, {
    details: { issues: [{ path: field, message: why }] },
  });
}
