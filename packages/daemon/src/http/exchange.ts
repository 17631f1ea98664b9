/** The life of one request: match, identify, check, call the handler, answer, write down. */
import { ServerResponse, type IncomingMessage, type RequestListener } from "node:http";
import type { Socket } from "node:net";
import { stringifyJson, type Logger } from "@forkd/base";
import { AppError, errorCodes, openapi, routes, toAppError, type Route } from "@forkd/contract";
import { requireInputScope, requireScope, type Gate, type Via } from "../access/gate.ts";
import { markIdentified } from "../access/strangers.ts";
import type { Audit, Trail } from "../audit/audit.ts";
import { Idempotency } from "../idempotency/idempotency.ts";
import { keyOf } from "../idempotency/key.ts";
import type { E2bServer } from "../e2b/e2b-server.ts";
import type { PortServer } from "../ports/port-server.ts";
import { closeSoon } from "./answer/close-soon.ts";
import { sendError } from "./answer/error.ts";
import { sendJson, sendText } from "./answer/json.ts";
import { Page } from "./answer/page.ts";
import { withSimilarNames } from "./answer/similar.ts";
import { sendResult, statusOf } from "./answer/result.ts";
import { withContent } from "./body/content.ts";
import { readInput } from "./body/input.ts";
import type { BodyPace } from "./body/json-body.ts";
import type { AnyHandler, Handlers, RequestContext } from "./handlers.ts";
import { matcher, noSuchRoute, pathOf } from "./match.ts";
import type { Connection, Plan } from "./plan.ts";
import { requestIdOf } from "./request-id.ts";
import { hostProblem } from "./target-host.ts";
import type { UpgradeListener } from "./upgrade.ts";

export type ExchangeOptions = {
  readonly handlers: Handlers;
  readonly version: string;
  readonly gate: Gate;
  readonly audit: Audit;
  readonly log: Logger;
  /** default: one that forgets when the process ends */
  readonly idempotency?: Idempotency | undefined;
  /** serves ports of sandboxes */
  readonly ports?: PortServer | undefined;
  /** serves E2B's API */
  readonly e2b?: E2bServer | undefined;
  /** how slowly bodies may arrive */
  readonly pace?: BodyPace | undefined;
  /** called when a request begins; what it returns, when it is over */
  readonly watch?: ((route: string) => () => void) | undefined;
  /** called for every request once it is answered */
  readonly observe?: ((request: Observed) => void) | undefined;
};
export type Observed = {
  readonly route: string;
  readonly endless: boolean;
  readonly status: number;
  readonly seconds: number;
  readonly code: string | undefined;
};
type Options = ExchangeOptions & { readonly idempotency: Idempotency };

/** Requests that are not in the table of routes */
const unlisted = { scope: "read", audit: "read", log: "info", endless: false } as const;
const findRoute = matcher(routes);
const findDocument = matcher({ openapi: { method: "get", path: "/openapi.json" } });

/** One listener per kind of socket. */
export function requestListener(given: ExchangeOptions): (via: Via) => RequestListener {
  const options = { ...given, idempotency: given.idempotency ?? new Idempotency() };
  return (via) => (incoming, outgoing) => {
    const connection = { incoming, outgoing, via };
    const e2b = hostProblem(incoming) === undefined ? options.e2b?.find(incoming) : undefined;
    if (e2b && options.e2b) return void exchange(connection, options, options.e2b.planOf(connection, e2b));
    const port = hostProblem(incoming) === undefined ? options.ports?.find(incoming) : undefined;
    if (port && options.ports)
      return void exchange(connection, options, options.ports.planOf(connection, port));
    const path = pathOf(incoming.url ?? "", incoming.headers.host || "localhost");
    const problem = path === undefined ? "bad URL or Host" : hostProblem(incoming);
    if (path === undefined || problem !== undefined) refuseTarget(outgoing, problem);
    else void exchange(connection, options, planOf(connection, options, path));
  };
}

/** Takes requests for ports that change the protocol of their connection. */
export function upgradeListener(given: ExchangeOptions): (via: Via) => UpgradeListener {
  const options = { ...given, idempotency: given.idempotency ?? new Idempotency() };
  return (via) => (incoming, socket, head) => {
    const { ports } = options;
    const port = hostProblem(incoming) === undefined ? ports?.find(incoming) : undefined;
    if (!ports || !port || !ports.takesUpgrade(port, incoming)) return false;
    // A client that has gone is not a failure of the daemon.
    socket.on("error", () => undefined);
    const outgoing = new ServerResponse(incoming);
    outgoing.shouldKeepAlive = false;
    // A connection of a server is a Socket; its type is that of all streams that Node may parse HTTP from.
    outgoing.assignSocket(socket as Socket);
    outgoing.once("finish", () => socket.end());
    const connection = { incoming, outgoing, via, upgrade: { socket, head } };
    void exchange(connection, options, ports.planOf(connection, port));
    return true;
  };
}

/** Neither logged nor audited, as with bytes that are not HTTP: there is no route to name. */
function refuseTarget(outgoing: ServerResponse, problem = "bad URL or Host"): void {
  const requestId = requestIdOf(undefined);
  outgoing.setHeader("x-request-id", requestId);
  sendError(outgoing, new AppError("invalid_request", `Invalid request: ${problem}`), requestId);
}

function planOf(connection: Connection, options: Options, path: string): Plan {
  const { incoming, outgoing } = connection;
  const method = incoming.method ?? "";
  if (findDocument(method, path).match) {
    const send = async () => {
      await sendJson(outgoing, 200, openapi(options.version));
      return undefined;
    };
    return { name: "openapi", route: unlisted, run: send };
  }
  const { match, allow } = findRoute(method, path);
  const refuse = () => Promise.reject(noSuchRoute(method, path, allow));
  if (match === undefined) return { name: "none", route: unlisted, run: refuse };
  const { name, parameters } = match;
  const route: Route = routes[name];
  if (method === "HEAD" && route.kind !== "json" && route.kind !== "text")
    return { name, route, run: refuse };
  // Handlers ties each handler to its route, which a name known only at run time cannot show.
  const handle = options.handlers[name] as unknown as AnyHandler;
  const served = { name, route, handle, parameters };
  return { name, route, run: (context, trail) => answer(connection, options, { ...served, context, trail }) };
}

async function exchange(connection: Connection, options: Options, plan: Plan): Promise<void> {
  const { incoming, outgoing, via } = connection;
  const { name, route } = plan;
  const startedAt = performance.now();
  const requestId = requestIdOf(incoming.headers["x-request-id"]);
  outgoing.setHeader("x-request-id", requestId);
  outgoing.setHeader("x-content-type-options", "nosniff");
  const abort = new AbortController();
  outgoing.once("close", () => {
    if (!outgoing.writableFinished) abort.abort(new AppError("cancelled", "The client went away"));
  });
  const trail = options.audit.begin({ incoming, via, requestId, route: name, kind: route.audit });
  const ended = options.watch?.(name);
  let release = () => {};
  /** memory of guests' data that the answer is made from */
  const held: Disposable[] = [];
  let failure: AppError | undefined;
  const untilAnswered = (each: Disposable) => void held.push(each);
  const log = options.log.child({ requestId });
  const context: RequestContext = {
    signal: abort.signal,
    log,
    requestId,
    receivedAt: startedAt,
    untilAnswered,
  };
  let revoked: AppError | undefined;
  const cut = (why: AppError) => {
    revoked ??= why;
    outgoing.shouldKeepAlive = false;
    abort.abort(revoked);
    // Do not keep the connection open for a client that does not read the error.
    closeSoon(outgoing);
  };
  try {
    if (plan.admit) plan.admit(trail);
    else trail.principal = options.gate.identify(incoming, via, route.scope);
    const { principal } = trail;
    if (principal) {
      release = principal.hold(cut);
      markIdentified(incoming.socket);
    }
    if (route.scope !== "open") requireScope(principal, route.scope);
    failure = await plan.run({ ...context, caller: principal?.caller }, trail);
  } catch (error) {
    const { principal } = trail;
    failure = await withSimilarNames(toAppError(error), { handlers: options.handlers, principal, context });
    failure = revoked ?? failure;
    // Do not wait for the body of an unknown client.
    if (via === "tcp" && trail.principal === undefined) outgoing.shouldKeepAlive = false;
    if (plan.refuse) plan.refuse(failure, requestId);
    else sendError(outgoing, failure, requestId);
  } finally {
    ended?.();
    release();
    for (const each of held) each[Symbol.dispose]();
  }
  const isGone = abort.signal.aborted && revoked === undefined;
  const status = isGone ? errorCodes.cancelled.status : outgoing.statusCode;
  const durationMs = performance.now() - startedAt;
  if (!plan.isAudited || failure) trail.end({ status, durationMs, failure });
  const { endless } = route;
  options.observe?.({ route: name, endless, status, seconds: durationMs / 1000, code: failure?.code });
  const principal = trail.principal?.name;
  const facts = { route: name, principal, method: incoming.method, via, requestId, status };
  record(options.log, { facts, durationMs, isGone, failure, level: route.log });
}

type Call = {
  readonly name: string;
  readonly route: Route;
  readonly handle: AnyHandler;
  readonly parameters: Record<string, string>;
  readonly context: RequestContext;
  readonly trail: Trail;
};

async function answer(
  { incoming, outgoing }: Connection,
  { idempotency, pace }: Options,
  { name, route, handle, parameters, context, trail }: Call,
): Promise<AppError | undefined> {
  const input = await readInput(route, { incoming, outgoing, pace }, parameters);
  trail.input(route, input);
  requireInputScope(trail.principal, route, input);
  const key = keyOf(incoming, route);
  if (key !== undefined) {
    const work = async (signal: AbortSignal) => {
      const made = await handle(input, { ...context, signal });
      return { status: statusOf(route, made), body: stringifyJson(made) };
    };
    const kept = await idempotency.run(
      { key, route: name, input, context: { ...context, caller: trail.principal } },
      work,
    );
    if (kept.replayed) outgoing.setHeader("idempotent-replayed", "true");
    trail.result(JSON.parse(kept.body));
    sendText(outgoing, kept.body, { status: kept.status });
    return undefined;
  }
  const result = await (route.kind === "upload"
    ? withContent(incoming, (content) => handle(input, { ...context, content }))
    : handle(input, route.kind === "sse" ? { ...context, ...lastEventOf(incoming) } : context));
  trail.result(result instanceof Page ? result.items : result);
  const { requestId, signal } = context;
  return sendResult(outgoing, result, { incoming, route, input, requestId, signal });
}

function lastEventOf(incoming: IncomingMessage): { lastEventId?: string } {
  const id = incoming.headers["last-event-id"];
  return typeof id === "string" && id !== "" ? { lastEventId: id } : {};
}

type Ended = {
  readonly facts: Readonly<Record<string, unknown>>;
  readonly durationMs: number;
  /** the client closed the connection first */
  readonly isGone: boolean;
  readonly failure: AppError | undefined;
  readonly level: Route["log"];
};

/** The one record of a request. The level follows the outcome. */
function record(log: Logger, { facts, durationMs, isGone, failure, level }: Ended): void {
  const fields = {
    event: "http.request",
    ...facts,
    outcome: isGone ? "abandoned" : failure ? "failed" : "ok",
    durationMs: Math.round(durationMs * 1000) / 1000,
    ...(failure && { errorCode: failure.code, error: failure.message }),
  };
  if (failure && !isGone && isDaemonFault(failure)) log.error({ ...fields, err: failure });
  else log[level](fields);
}

/** 501 is about the request: the daemon does not have what it asks for. */
function isDaemonFault({ code }: AppError): boolean {
  const { status } = errorCodes[code];
  return status >= 500 && status !== 501;
}
