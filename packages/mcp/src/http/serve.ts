/** Serves MCP over streamable HTTP at /mcp, for callers with a key. */
import { once } from "node:events";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { isLegacyRequest } from "@modelcontextprotocol/server";
import { AppError, deadlineSignal, errorCodes, toAppError } from "@forkd/contract/wire";
import type { ServeOptions } from "../options.ts";
import { toolRemedy } from "../results/remedies.ts";
import { killCreated } from "../stdio.ts";
import { Callers, type KeyRule } from "./callers.ts";
import { checkBrowserTraps, isLoopback } from "./guard.ts";
import { refusal, Sessions, type SessionLimits } from "./sessions.ts";
import { readBody, sendResponse, toRequest } from "./web.ts";

export type HttpOptions = ServeOptions & {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly keys: KeyRule;
  /** PEM texts. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
  /** Names of this server besides loopback, for the headers Host and Origin. */
  readonly allowHosts: readonly string[];
  readonly sessions?: Partial<SessionLimits> | undefined;
  /** Called with the address when the server listens. */
  readonly onReady: (url: string) => void;
};

const path = "/mcp";
/** Requests whose answers are not complete. */
const mostOpen = 256;
const shortestKey = 16;
const listenMs = 10_000;
/** How long answers may take to end when the server ends. */
const closeMs = 2000;

/** Resolves when `signal` has aborted and everything is closed. */
export async function serveHttp(options: HttpOptions): Promise<void> {
  checkExposure(options);
  const { tls, host, port, signal, killOnExit, log } = options;
  const callers = new Callers(options, options.keys);
  const sessions = new Sessions(options, options.sessions);
  let open = 0;
  const listener = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    open++;
    const finish = (): void => void open--;
    outgoing.once("close", finish);
    answer({ incoming, outgoing, callers, sessions, options, isFull: open > mostOpen }).catch(
      (error: unknown) => {
        log(`A request failed: ${toAppError(error).message}`);
        outgoing.destroy();
      },
    );
  };
  const server = tls
    ? https.createServer({ ...tls, minVersion: "TLSv1.2" }, listener)
    : http.createServer(listener);
  using deadline = deadlineSignal(listenMs);
  server.listen(port, host);
  await once(server, "listening", { signal: deadline.signal });
  const { port: actual } = server.address() as AddressInfo;
  options.onReady(`${tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${actual}${path}`);
  // No deadline: the server runs until it is interrupted.
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  await sessions.close();
  await callers.close(async (backend) => {
    await backend.settled();
    if (killOnExit) await killCreated(backend, log);
  });
  const late = setTimeout(() => server.closeAllConnections(), closeMs);
  server.closeIdleConnections();
  // No deadline: the timer closes what is still open.
  await closed;
  clearTimeout(late);
}

/** Keys must not travel in clear text over a network. */
function checkExposure({ host, tls, keys }: HttpOptions): void {
  if (!isLoopback(host) && tls === undefined)
    throw new AppError(
      "invalid_request",
      `Cannot serve MCP on "${host}": an address other than loopback needs TLS`,
      {
        remedy: {
          action: "advice",
          text: "Give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy with --allow-host.",
        },
      },
    );
  if (keys.kind === "own" && keys.key.length < shortestKey)
    throw new AppError("invalid_request", `The key must have at least ${shortestKey} characters`);
}

type Exchange = {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly callers: Callers;
  readonly sessions: Sessions;
  readonly options: HttpOptions;
  readonly isFull: boolean;
};

async function answer(exchange: Exchange): Promise<void> {
  const { outgoing } = exchange;
  const response = await respond(exchange).catch((error: unknown) => errorResponse(error));
  // A client that was refused may still be sending its body.
  if (response.status >= 400 && !exchange.incoming.complete) outgoing.setHeader("connection", "close");
  await sendResponse(response, outgoing);
}

async function respond({
  incoming,
  outgoing,
  callers,
  sessions,
  options,
  isFull,
}: Exchange): Promise<Response> {
  const { headers } = incoming;
  const { host, origin } = headers;
  const fetchSite = [headers["sec-fetch-site"]].flat()[0];
  const scheme = options.tls ? "https" : "http";
  const { localAddress } = incoming.socket;
  checkBrowserTraps({ host, origin, fetchSite, localAddress }, { hosts: options.allowHosts, scheme });
  if (isFull) throw new AppError("capacity_exhausted", "The server has too many open requests");
  if ((incoming.url ?? "").replace(/\?.*/s, "") !== path)
    throw new AppError("not_found", `There is nothing at this path: MCP is at ${path}`);
  const caller = await callers.identify(headers.authorization);
  const gone = new AbortController();
  const done = new Promise<void>((resolve) => outgoing.once("close", () => resolve()));
  outgoing.once("close", () => !outgoing.writableFinished && gone.abort());
  const text = incoming.method === "POST" ? await readBody(incoming) : "";
  const body = incoming.method === "POST" ? parseJson(text) : undefined;
  const request = toRequest(incoming, { scheme, body: text, signal: gone.signal });
  if (await isLegacyRequest(request.clone(), body))
    return sessions.handle(caller, request, { body, ended: gone.signal, done });
  return caller.modern.fetch(request, { parsedBody: body });
}

/** The protocol library answers a body that is not JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new AppError("invalid_request", "The body of the request is not JSON");
    throw error;
  }
}

function errorResponse(error: unknown): Response {
  const app = toAppError(error);
  const remedy = toolRemedy(app);
  const status = app.code === "capacity_exhausted" ? 503 : errorCodes[app.code].status;
  const headers: Record<string, string> = {
    ...(status === 401 && { "www-authenticate": 'Bearer realm="forkd"' }),
    ...((status === 503 || status === 429) && { "retry-after": "1" }),
  };
  return refusal(status, [app.message, remedy].filter(Boolean).join(". "), headers);
}
