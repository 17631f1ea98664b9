/** Failures of requests and answers, as ForkdError. */
import { advice, AppError, fromErrorBody } from "@forkd/contract/wire";
import type { ErrorBody, ErrorCode, Remedy } from "@forkd/contract";
import { remember } from "./convert/answer.ts";
import type { CommandResult } from "./types.ts";

/** True for every error of this SDK; with a code (from `errorCodes`) only for errors with that code. */
export function isForkdError<C extends ErrorCode>(
  error: unknown,
  code: C,
): error is AppError & { readonly code: C };
export function isForkdError(error: unknown): error is AppError;
export function isForkdError(error: unknown, code?: ErrorCode): boolean {
  return error instanceof AppError && (code === undefined || error.code === code);
}

/** A child that could not be forked. */
export class ForkError extends AppError {
  override readonly name = "ForkError";
  /** Position of the child in the call, from 0. */
  readonly index: number;

  /** @internal */
  constructor(body: ErrorBody & { index: number }) {
    const error = fromErrorBody(body);
    super(error.code, error.message, { details: { ...error.details }, remedy: error.remedy });
    this.index = body.index;
    remember(this, body);
  }
}

/** A command that failed although it had to succeed; the message ends with the last lines of its output. */
export class CommandError extends AppError {
  override readonly name = "CommandError";
  /** Exit code and output of the command. */
  readonly result: CommandResult;

  /** @internal */
  constructor(program: string, result: CommandResult) {
    const how = result.timedOut
      ? "it ran out of time"
      : result.signal === undefined
        ? `exit code ${result.exitCode}`
        : `it was ended by ${result.signal}`;
    const output = result.stderr.trim() || result.stdout.trim();
    const tail = output.split("\n").slice(-5).join("\n");
    const code: ErrorCode = result.timedOut ? "deadline_exceeded" : "guest_refused";
    super(code, `Command ${program} failed: ${how}${tail === "" ? "" : `\n${tail}`}`, {
      details: { exec_id: result.execId, exit_code: result.exitCode },
    });
    this.result = result;
  }
}

/** The error of an answer with a failure status. */
export function fromAnswer(status: number, text: string): AppError {
  const body = jsonIn(text);
  if (isErrorBody(body)) return fromErrorBody({ ...body, details: body.details ?? {} });
  return new AppError("internal", `The daemon answered with status ${status} and no error body`, {
    details: { status, body: text.slice(0, 1000) },
  });
}

/** False for an answer that a proxy gave instead of the daemon. */
function isErrorBody(
  body: unknown,
): body is Omit<ErrorBody, "details"> & Partial<Pick<ErrorBody, "details">> {
  return (
    typeof body === "object" &&
    body !== null &&
    "error" in body &&
    typeof body.error === "string" &&
    "code" in body &&
    typeof body.code === "string"
  );
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** The value of an answer, or of one of its lines; a proxy may have answered instead of the daemon. */
export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new AppError("internal", `The daemon's answer to ${what} is not JSON`, {
      details: { body: text.slice(0, 1000) },
      remedy: advice("Check the address, and use the same version of forkd for the client and the daemon."),
      cause: error,
    });
  }
}

/** The error for a request that got no answer, or half of one. */
export function fromFailure(
  error: unknown,
  context: { target: string; phase: "connect" | "answer"; signal?: AbortSignal | undefined },
): AppError {
  if (error instanceof AppError) return error;
  if (context.signal?.aborted) return cancelled(context.signal.reason);
  const { target, phase } = context;
  if (phase === "connect") {
    const { why, remedy } = explain(causeOf(error), target);
    const message = `Cannot reach the daemon at ${target}: ${why}`;
    return new AppError("daemon_unreachable", message, { details: { target }, remedy, cause: error });
  }
  const message = `The answer of the daemon at ${target} was cut before its end: ${causeOf(error)}`;
  return new AppError("daemon_unreachable", message, { details: { target, cut: true }, cause: error });
}

/** Why there is no connection, on one line, and what helps. */
function explain(cause: string, target: string): { why: string; remedy: Remedy } {
  const why = cause.replaceAll(/\s+/g, " ").trim();
  const other = target.replace(/^http(s?):/i, (_, secure: string) => (secure === "" ? "https:" : "http:"));
  if (/^https:/i.test(target) && /EPROTO|wrong version number|packet length too long/i.test(why))
    return { why: "it does not use TLS", remedy: { action: "use_address", url: other } };
  if (/^http:/i.test(target) && /socket hang up|ECONNRESET|Parse Error|other side closed/i.test(why))
    return {
      why: "it closed the connection without an answer",
      remedy: { action: "try_tls", url: other },
    };
  if (/certificate|self.signed|altname/i.test(why)) return { why, remedy: { action: "trust_certificate" } };
  return { why, remedy: { action: other === target ? "start_daemon" : "check_address" } };
}

export function cancelled(reason?: unknown): AppError {
  return new AppError("cancelled", "The request was cancelled", { cause: reason });
}

function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // fetch() puts the reason into the cause of a TypeError.
  return error.cause instanceof Error ? error.cause.message : error.message;
}
