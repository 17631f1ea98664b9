/**
 * The table of routes → a listener for Node's server. Hono matches paths; nothing else uses it.
 *
 * Answers are written to Node's response directly: streams need its back-pressure and its "close" event, and one way of
 * writing is simpler than two. Hono is told so with RESPONSE_ALREADY_SENT.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { RESPONSE_ALREADY_SENT } from "@hono/node-server/utils/response";
import type { Logger } from "@forkd/base";
import type { Listener } from "@forkd/runtime";
import {
  advice,
  AppError,
  errorCodes,
  openapi,
  routes,
  toAppError,
  toErrorBody,
  type EvalEvent,
  type ExecEvent,
  type ParsedOf,
  type ResponseOf,
  type Route,
  type RouteName,
  type Routes,
} from "@forkd/contract";
import type { Caller } from "@forkd/runtime";
import { Hono, type Context } from "hono";
import { sendError } from "./answer/error.ts";
import type { Audit, Trail } from "../audit/audit.ts";
import { requireInputScope, requireScope, type Gate, type Via } from "../access/gate.ts";
import { Idempotency } from "../idempotency/idempotency.ts";
import { keyOf } from "../idempotency/key.ts";
import { requestIdOf } from "./request-id.ts";
import { answerPage, Page } from "./answer/page.ts";
import { sendEvents } from "./answer/events.ts";
import { closeSoon } from "./answer/close-soon.ts";
import { ByteBudget } from "./body/byte-budget.ts";
import { clientLeft, type BodyPace } from "./body/json-body.ts";
import { readInput } from "./body/input.ts";
import { sendBytes, sendLines } from "./answer/lines.ts";

/** `signal` fires when the client goes away before the answer is complete, or may no longer have it. */
export type RequestContext = {
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly requestId: string;
  readonly caller?: Caller | undefined;
  /** header Last-Event-ID */
  readonly lastEventId?: string | undefined;
};
export type UploadContext = RequestContext & { readonly content: AsyncIterable<Uint8Array> };

type AnswerOf<N extends RouteName> = Routes[N]["kind"] extends "bytes"
  ? AsyncIterable<Uint8Array>
  : Routes[N]["kind"] extends "events" | "sse"
    ? AsyncIterable<ResponseOf<N>>
    : | ResponseOf<N>
      | (ResponseOf<N> extends readonly unknown[] ? Page<ResponseOf<N>[number]> : never)
      | (N extends "exec" ? AsyncIterable<ExecEvent> : N extends "eval" ? AsyncIterable<EvalEvent> : never);
type ContextOf<N extends RouteName> = Routes[N]["kind"] extends "upload" ? UploadContext : RequestContext;

/**
 * One function per route. A rejection becomes a status. Iterables are answered line by line (or byte by byte) from the
 * moment the handler resolves, so what can fail with a status must fail before.
 */
export type Handlers = {
  readonly [N in RouteName]: (
    input: ParsedOf<N>,
    context: ContextOf<N>,
  ) => AnswerOf<N> | Promise<AnswerOf<N>>;
};
type AnyHandler = (input: Record<string, unknown>, context: RequestContext | UploadContext) => unknown;

export type RouterOptions = {
  readonly handlers: Handlers;
  readonly version: string;
  readonly gate: Gate;
  readonly audit: Audit;
  readonly log: Logger;
  /** default: one that forgets with the process */
  readonly idempotency?: Idempotency | undefined;
  /** how slowly bodies may come */
  readonly pace?: BodyPace | undefined;
  /** told about every request once it is answered */
  readonly observe?: ((request: Observed) => void) | undefined;
};
export type Observed = { route: string; status: number; seconds: number; code: string | undefined };
type Bindings = { incoming: IncomingMessage; outgoing: ServerResponse; via: Via };
type Env = { Bindings: Bindings };
/** Resolves with a failure that came after the status was sent. */
type Run = (context: RequestContext, trail: Trail) => Promise<AppError | undefined>;
/** Name in the table, and who may ask. */
type Asked = { readonly name: string; readonly scope: Route["scope"] };

/** One listener per kind of socket. */
export function router(given: RouterOptions): (via: Via) => RequestListener {
  const options = { ...given, idempotency: given.idempotency ?? new Idempotency() };
  const app = new Hono<Env>();
  for (const [name, route] of Object.entries<Route>(routes)) {
    // Object.entries forgets that each handler belongs to the route of the same name.
    const handle = options.handlers[name as RouteName] as unknown as AnyHandler;
    app.on(route.method.toUpperCase(), route.path.replaceAll(/\{(\w+)\}/g, ":$1"), (c) =>
      exchange(c, options, { name, scope: route.scope }, (context, trail) =>
        answer({ name, route, handle, ...options }, c, { context, trail }),
      ),
    );
  }
  app.get("/openapi.json", (c) =>
    exchange(c, options, { name: "openapi", scope: "read" }, async () =>
      sendJson(c.env.outgoing, 200, openapi(options.version)),
    ),
  );
  app.notFound((c) =>
    exchange(c, options, { name: "none", scope: "read" }, async () => {
      throw noSuchRoute(c.req.method, c.req.path);
    }),
  );
  return (via) =>
    getRequestListener((request, env) => app.fetch(request, { ...env, via }), {
      autoCleanupIncoming: false,
      overrideGlobalObjects: false,
      hostname: "localhost",
      // Only a request line or a Host that is no URL gets here.
      errorHandler: () => {
        const requestId = requestIdOf(undefined);
        const error = new AppError("invalid_request", "Invalid request: bad URL or Host");
        return Response.json(toErrorBody(error, requestId), {
          status: 400,
          headers: { "x-request-id": requestId },
        });
      },
    });
}

async function exchange(c: Context<Env>, options: RouterOptions, asked: Asked, run: Run): Promise<Response> {
  const { incoming, outgoing, via } = c.env;
  const startedAt = performance.now();
  const requestId = requestIdOf(incoming.headers["x-request-id"]);
  outgoing.setHeader("x-request-id", requestId);
  outgoing.setHeader("x-content-type-options", "nosniff");
  const abort = new AbortController();
  outgoing.once("close", () => {
    if (!outgoing.writableFinished) abort.abort(new AppError("cancelled", "The client went away"));
  });
  const trail = options.audit.begin({ incoming, via, requestId, route: asked.name });
  let release = () => {};
  let failure: AppError | undefined;
  let revoked: AppError | undefined;
  const cut = (why: AppError) => {
    revoked ??= why;
    outgoing.shouldKeepAlive = false;
    abort.abort(revoked);
    // Whoever does not read that must not stay for it.
    closeSoon(outgoing);
  };
  try {
    const principal = (trail.principal = options.gate.identify(incoming, via, asked.scope));
    if (principal) release = principal.hold(cut);
    if (asked.scope !== "open") requireScope(principal, asked.scope);
    const caller = principal?.caller;
    failure = await run(
      { signal: abort.signal, log: options.log.child({ requestId }), requestId, caller },
      trail,
    );
  } catch (error) {
    failure = revoked ?? toAppError(error);
    // A stranger's body is not waited for.
    if (via === "tcp" && trail.principal === undefined) outgoing.shouldKeepAlive = false;
    sendError(outgoing, failure, requestId);
  } finally {
    release();
  }
  const gone = abort.signal.aborted && revoked === undefined;
  const status = gone ? errorCodes.cancelled.status : outgoing.statusCode;
  trail.end({ status, durationMs: performance.now() - startedAt, failure });
  options.observe?.({
    route: asked.name,
    status,
    seconds: (performance.now() - startedAt) / 1000,
    code: failure?.code,
  });
  record(
    options.log,
    {
      route: asked.name,
      principal: trail.principal?.name,
      method: incoming.method,
      via,
      requestId,
      status,
      startedAt,
      gone,
    },
    failure,
  );
  return RESPONSE_ALREADY_SENT;
}

type Served = {
  name: string;
  route: Route;
  handle: AnyHandler;
  idempotency: Idempotency;
  pace?: BodyPace | undefined;
};

async function answer(
  { name, route, handle, idempotency, pace }: Served,
  c: Context<Env>,
  { context, trail }: { context: RequestContext; trail: Trail },
): Promise<AppError | undefined> {
  const { incoming, outgoing } = c.env;
  if (incoming.method === "HEAD" && route.kind !== "json" && route.kind !== "text")
    throw noSuchRoute("HEAD", c.req.path);
  const input = await readInput(route, { incoming, outgoing, pace }, c.req.param() as Record<string, string>);
  trail.input(route, input);
  requireInputScope(trail.principal, route, input);
  const key = keyOf(incoming, name, route);
  if (key !== undefined) {
    const work = async (signal: AbortSignal) => {
      const made = await handle(input, { ...context, signal });
      return { status: statusOf(route, made), body: JSON.stringify(made) };
    };
    const kept = await idempotency.run({ key, route: name, input, context }, work);
    if (kept.replayed) outgoing.setHeader("idempotent-replayed", "true");
    trail.result(JSON.parse(kept.body));
    return sendText(outgoing, kept.status, kept.body);
  }
  const result = await (route.kind === "upload"
    ? withContent(incoming, (content) => handle(input, { ...context, content }))
    : handle(input, route.kind === "sse" ? { ...context, ...lastEventOf(incoming) } : context));
  trail.result(result instanceof Page ? result.items : result);
  const stream = { status: route.status, requestId: context.requestId, signal: context.signal };
  // The type Handlers ties the kind of the route to the form of its result.
  if (route.kind === "bytes") return sendBytes(outgoing, result as AsyncIterable<Uint8Array>, stream);
  if (route.kind === "events" || (route.streamed && input["stream"] === true)) {
    return sendLines(outgoing, result as AsyncIterable<unknown>, stream);
  }
  if (route.kind === "sse") return sendEvents(outgoing, result as Listener, { signal: context.signal });
  if (route.kind === "text") return sendText(outgoing, route.status, result as string, metricsType);
  if (result instanceof Page) return sendJson(outgoing, route.status, answerPage(outgoing, incoming, result));
  return sendJson(outgoing, statusOf(route, result), result);
}

/** The one text that is served is the exposition of Prometheus. */
const metricsType = "text/plain; version=0.0.4; charset=utf-8";

function lastEventOf(incoming: IncomingMessage): { lastEventId?: string } {
  const id = incoming.headers["last-event-id"];
  return typeof id === "string" && id !== "" ? { lastEventId: id } : {};
}

function statusOf(route: Route, result: unknown): number {
  return isPending(result) ? (route.pendingStatus ?? route.status) : route.status;
}

/** What was asked for is still being made. */
function isPending(result: unknown): boolean {
  return typeof result === "object" && result !== null && "status" in result && result.status === "writing";
}

/** What `use` leaves unread is read and dropped, so that the client can finish writing and then read the answer. */
async function withContent(
  incoming: IncomingMessage,
  use: (content: AsyncIterable<Uint8Array>) => unknown,
): Promise<unknown> {
  try {
    return await use(contentOf(incoming));
  } finally {
    if (!incoming.readableEnded) incoming.resume();
  }
}

/** The only failure of a request's body is that no more of it comes. */
async function* contentOf(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
  try {
    yield* incoming.iterator({ destroyOnReturn: false });
  } catch (error) {
    throw clientLeft(error);
  }
}

async function sendJson(outgoing: ServerResponse, status: number, value: unknown): Promise<undefined> {
  if (status === 204) {
    outgoing.writeHead(status).end();
    return;
  }
  return sendText(outgoing, status, JSON.stringify(value));
}

const largeBytes = 1024 * 1024;
/** Large answers that their readers have not taken */
const unread = new ByteBudget({
  maxBytes: 256 * 1024 * 1024,
  which: "unread answers",
  message: (inUse, limit) => `Too many large answers wait to be read (${inUse} bytes; the limit is ${limit})`,
  remedy: advice("Read those answers first, or ask for a stream."),
});

async function sendText(
  outgoing: ServerResponse,
  status: number,
  text: string,
  type = "application/json",
): Promise<undefined> {
  const length = Buffer.byteLength(text);
  if (length > largeBytes) unread.during(outgoing)(length);
  outgoing.writeHead(status, { "content-type": type, "content-length": length });
  outgoing.end(text);
}

const patterns = Object.values<Route>(routes).map((route) => ({
  method: route.method.toUpperCase(),
  matches: new RegExp(`^${route.path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+")}$`),
}));

function noSuchRoute(method: string, path: string): AppError {
  const methods = patterns.filter((pattern) => pattern.matches.test(path)).map((pattern) => pattern.method);
  if (methods.length === 0) return new AppError("not_found", `No such route: ${method} ${path}`);
  const allow = [...new Set(methods)].sort().join(", ");
  return new AppError("method_not_allowed", `${path} does not take ${method}; it takes ${allow}`, {
    details: { allow },
  });
}

/** What cannot be done here is the caller's to know. */
function isOurFault({ code }: AppError): boolean {
  const { status } = errorCodes[code];
  return status >= 500 && status !== 501;
}

type Facts = {
  route: string;
  principal: string | undefined;
  method: string | undefined;
  via: Via;
  requestId: string;
  status: number;
  startedAt: number;
  gone: boolean;
};

/** The one record of a request. The level follows the outcome. */
function record(log: Logger, { startedAt, gone, ...facts }: Facts, failure: AppError | undefined): void {
  const fields = {
    event: "http.request",
    ...facts,
    outcome: gone ? "abandoned" : failure ? "failed" : "ok",
    durationMs: Math.round((performance.now() - startedAt) * 1000) / 1000,
    ...(failure && { errorCode: failure.code, error: failure.message }),
  };
  if (failure && !gone && isOurFault(failure)) log.error({ ...fields, err: failure });
  else if (facts.route === "health") log.debug(fields);
  else log.info(fields);
}
