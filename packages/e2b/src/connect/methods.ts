/** Serves methods of Connect services: unary ones and server streams, as JSON. */
import type { z } from "zod";
import { AppError, toAppError } from "@forkd/contract";
import { sendJson } from "../http/answer.ts";
import { readBody } from "../http/body.ts";
import type { E2bRequest } from "../types.ts";
import { connectCodeOf, connectError, connectStatus } from "./codes.ts";
import { onlyMessage } from "./frames.ts";
import { keepaliveMs, parseMessage, timeoutMs } from "./messages.ts";
import { sendStream } from "./stream.ts";

/** Input of a process is in one message. */
const maxMessageBytes = 32 * 1024 * 1024;
const unaryType = /^application\/json\b/i;
const streamType = /^application\/connect\+json\b/i;

type Unary<C> = {
  readonly kind: "unary";
  readonly answer: (call: C, body: Buffer) => Promise<object>;
};

type ServerStream<C> = {
  readonly kind: "stream";
  /** the message that keeps a silent stream open */
  readonly keepalive: object;
  readonly open: (
    call: C,
    body: Buffer,
    options: { timeoutMs: number | undefined },
  ) => Promise<AsyncIterable<object>>;
};

export type Method<C> = Unary<C> | ServerStream<C>;

export function unary<C, T>(
  schema: z.ZodType<T>,
  answer: (call: C, message: T) => Promise<object | void>,
): Unary<C> {
  return {
    kind: "unary",
    answer: async (call, body) => (await answer(call, parseMessage(schema, body))) ?? {},
  };
}

export function serverStream<C, T>(
  schema: z.ZodType<T>,
  keepalive: object,
  open: (call: C, message: T, options: { timeoutMs: number | undefined }) => Promise<AsyncIterable<object>>,
): ServerStream<C> {
  return {
    kind: "stream",
    keepalive,
    open: (call, body, options) => open(call, parseMessage(schema, onlyMessage(body)), options),
  };
}

type Serving<C> = {
  readonly method: Method<C>;
  /** Throws if the request may not be served. Called before the body is read, and with the signal of the answer. */
  readonly call: (signal: AbortSignal) => C;
  /** whether the failure means that the sandbox has ended, for which clients look at the connection */
  readonly breaksOn: (error: AppError) => boolean;
};

/** Resolves with the failure, if there was one. Throws what the caller has to answer. */
export function serveMethod<C>(request: E2bRequest, serving: Serving<C>): Promise<AppError | undefined> {
  return serving.method.kind === "unary"
    ? serveUnary(request, serving.method, serving)
    : serveStream(request, serving.method, serving);
}

async function serveUnary<C>(
  request: E2bRequest,
  method: Unary<C>,
  { call, breaksOn }: Serving<C>,
): Promise<AppError | undefined> {
  try {
    requireType(request, unaryType);
    const called = call(request.context.signal);
    sendJson(request, 200, await method.answer(called, await readBody(request.incoming, maxMessageBytes)));
    return undefined;
  } catch (error) {
    const failure = toAppError(error);
    if (breaksOn(failure)) throw failure;
    sendJson(request, connectStatus[connectCodeOf(failure)], connectError(failure));
    return failure;
  }
}

async function serveStream<C>(
  request: E2bRequest,
  method: ServerStream<C>,
  { call, breaksOn }: Serving<C>,
): Promise<AppError | undefined> {
  const { incoming, outgoing, context } = request;
  const { headers } = incoming;
  requireType(request, streamType);
  // A request that may not be served must not make the daemon read its body.
  call(context.signal);
  const body = await readBody(incoming, maxMessageBytes);
  const limit = timeoutMs(headers["connect-timeout-ms"]);
  const open = (signal: AbortSignal) => method.open(call(signal), body, { timeoutMs: limit });
  return sendStream(outgoing, open, {
    signal: context.signal,
    timeoutMs: limit,
    keepaliveMs: keepaliveMs(headers["keepalive-ping-interval"]),
    keepalive: method.keepalive,
    breaksOn,
  });
}

function requireType({ incoming }: E2bRequest, expected: RegExp): void {
  const type = incoming.headers["content-type"] ?? "";
  if (expected.test(type)) return;
  throw new AppError("unsupported", `Cannot read a request of the type "${type}": only JSON is supported`);
}
