/**
 * Plain HTTP of guests: requests to a host, to an explicit proxy (absolute URLs and CONNECT), to the gateway. Every request on a
 * connection is checked, because each can name another host. Node's strict parser reads them, and each is written again, so
 * that guest, proxy and host cannot disagree about where a request ends.
 */
import http from "node:http";
import type net from "node:net";
import type { Duplex } from "node:stream";
import { AppError, errorMessage } from "@forkd/contract";
import { parseAuthority } from "../policy/host.ts";
import { grantsFor, refusalText, type MachineAccess, type Target } from "./access.ts";
import type { Connection, Dial } from "./connection.ts";
import { UpstreamAgent } from "./http-agent.ts";
import { answerText, forward, forwardUpgrade, type Forwarded } from "./http-forward.ts";
import { endToEnd, headerBytes, headerPairs, withoutHeaders } from "./http-headers.ts";
import { isGateway, readTarget, type Requested, type Wrong } from "./http-target.ts";
import { connectToProxy } from "./upstream.ts";

const maxHeaderBytes = 64 * 1024;
const headersMs = 30_000;
const keepAliveMs = 120_000;
/** Requests that a guest sends without waiting for answers */
const maxPipelined = 32;

type Session = {
  readonly connection: Connection;
  readonly dial: Dial;
  readonly access: MachineAccess;
  readonly agent: UpstreamAgent;
  active: number;
};

export class HttpFront implements Disposable {
  readonly #server: http.Server;
  readonly #sessions = new WeakMap<Duplex, Session>();

  constructor(idleMs: number) {
    this.#server = http.createServer({
      maxHeaderSize: maxHeaderBytes,
      headersTimeout: headersMs,
      connectionsCheckingInterval: 10_000,
      // Uploads may take as long as they make progress.
      requestTimeout: 0,
      keepAliveTimeout: keepAliveMs,
      // HTTP/1.0 has no Host; others are refused below, with a text.
      requireHostHeader: false,
    });
    this.#server.timeout = idleMs;
    // Node starts to check the time for headers when a server listens, and this one never does.
    this.#server.emit("listening");
    this.#server.on("request", (request, response) => this.#onRequest(request, response, false));
    this.#server.on("checkContinue", (request, response) => this.#onRequest(request, response, true));
    this.#server.on("connect", (request, socket, head) => this.#onConnect(request, socket, head));
    this.#server.on("upgrade", (request, socket, head) => this.#onUpgrade(request, socket, head));
  }

  /** The socket holds the first bytes. */
  serve(connection: Connection, dial: Dial, access: MachineAccess): void {
    const agent = new UpstreamAgent();
    const session = { connection, dial, access, agent, active: 0 };
    agent.onIdleClose = () => {
      // As if the guest were connected to the host: it sees the close and does not send the next request into it.
      if (session.active === 0 && dial.isProxy !== true) connection.guest.end();
    };
    this.#sessions.set(connection.guest, session);
    connection.guest.once("close", () => agent.destroy());
    this.#server.emit("connection", connection.guest);
  }

  [Symbol.dispose](): void {
    this.#server.close(() => undefined);
  }

  #onRequest(request: http.IncomingMessage, response: http.ServerResponse, expectsContinue: boolean): void {
    const session = this.#sessions.get(request.socket);
    if (!session || session.active >= maxPipelined) {
      request.socket.destroy();
      return;
    }
    session.active++;
    response.once("close", () => session.active--);
    void this.#serve(session, request, response, expectsContinue);
  }

  /** Does not reject: nothing that a guest sends may end this process. */
  async #serve(
    session: Session,
    request: http.IncomingMessage,
    response: http.ServerResponse,
    expectsContinue: boolean,
  ): Promise<void> {
    try {
      const bytes = headerBytes(request.rawHeaders) + (request.url?.length ?? 0);
      await session.access.charge("out", bytes);
      const wrong = this.#serveRequest(session, request, response, expectsContinue);
      if (wrong) answerText(response, wrong.status, wrong.text);
    } catch (error) {
      answerText(response, isForbidden(error) ? 403 : 400, errorMessage(error));
    }
  }

  #serveRequest(
    session: Session,
    request: http.IncomingMessage,
    response: http.ServerResponse,
    expectsContinue: boolean,
  ): Wrong | undefined {
    const requested = readTarget(request, session.dial);
    if ("status" in requested) return requested;
    if (isGateway(requested.host)) {
      serveGateway(session, request, response, { path: requested.path, expectsContinue });
      return undefined;
    }
    const checked = check(session, request, requested);
    if ("status" in checked) return checked;
    const { target, headers } = checked;
    forward(request, response, {
      method: request.method ?? "GET",
      ...route(session, { ...requested, target, headers }),
      charge: (direction, bytes) => session.access.charge(direction, bytes),
      expectsContinue,
      onDone: (outcome) => report(session, request, target, outcome),
    });
    return undefined;
  }

  /** A tunnel: what follows is served as a connection to the named host, with the same checks. */
  #onConnect(request: http.IncomingMessage, socket: Duplex, head: Buffer): void {
    const session = this.#sessions.get(socket);
    const guest = session?.connection.guest;
    if (!session || !guest) {
      socket.destroy();
      return;
    }
    const authority = parseAuthority(request.url ?? "");
    // A tunnel inside a tunnel has no use and would let a guest nest them without end.
    if (authority?.port === undefined || session.dial.isTunnel === true) {
      refuseSocket(guest, 400, "CONNECT needs a host and a port, and cannot be nested");
      return;
    }
    const dial = { port: authority.port, ...authority.host, isTunnel: true };
    const checked = session.access.targetFor({ port: dial.port }, authority.host);
    if ("refused" in checked) {
      session.access.deny(checked.refused, { via: "http", method: "CONNECT" });
      refuseSocket(guest, 403, refusalText(checked.refused));
      return;
    }
    session.connection.grants.add({ protocol: "tcp", port: dial.port, ...authority.host });
    guest.write("HTTP/1.1 200 Connection established\r\n\r\n");
    if (head.length > 0) guest.unshift(head);
    session.access.serve(session.connection, dial);
  }

  #onUpgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer): void {
    const session = this.#sessions.get(socket);
    const guest = session?.connection.guest;
    if (!session || !guest) {
      socket.destroy();
      return;
    }
    if (request.headers.upgrade?.toLowerCase() !== "websocket") {
      // A server may ignore the header. HTTP/2 in particular would carry requests that are not checked.
      const headers = withoutHeaders(
        request.rawHeaders,
        new Set(["upgrade", "connection", "http2-settings"]),
      );
      guest.unshift(Buffer.concat([Buffer.from(requestHead(request, headers), "latin1"), head]));
      this.#server.emit("connection", guest);
      return;
    }
    const requested = readTarget(request, session.dial);
    const checked = "status" in requested ? requested : check(session, request, requested);
    if ("status" in requested || "status" in checked) {
      const wrong = "status" in requested ? requested : (checked as Wrong);
      refuseSocket(guest, wrong.status, wrong.text);
      return;
    }
    const { target, headers } = checked;
    const upgrade = ["Connection", "Upgrade", "Upgrade", "websocket"];
    session.access
      .connect(session.connection, target)
      .then((upstream) =>
        forwardUpgrade(request, guest, head, {
          method: request.method ?? "GET",
          path: requested.path,
          headers: [...headers, ...upgrade],
          via: { socket: upstream },
          charge: (direction, bytes) => session.access.charge(direction, bytes),
          onDone: (outcome) => report(session, request, target, outcome),
        }),
      )
      .catch((error: unknown) => refuseSocket(guest, 502, errorMessage(error)));
  }
}

/** The target of a request that is allowed, and its headers as they may be sent there. */
function check(
  { access }: Session,
  request: http.IncomingMessage,
  { host, dial, authority }: Requested,
): { target: Target; headers: string[] } | Wrong {
  const checked = access.targetFor(dial, host);
  if ("refused" in checked) {
    access.deny(checked.refused, { via: "http", method: request.method });
    return { status: 403, text: refusalText(checked.refused) };
  }
  const { target } = checked;
  const name = target.name ?? target.address ?? "";
  const rest = withoutHeaders(endToEnd(request.rawHeaders), new Set(["host"]));
  const rewritten = access.interceptor.rewriteRequest(
    ["Host", authority ?? name, ...rest],
    name,
    access.secrets,
  );
  if ("refused" in rewritten) {
    access.log({
      event: "denied",
      protocol: "tcp",
      via: "http",
      ...target,
      method: request.method,
      reason: rewritten.refused,
    });
    return { status: 403, text: rewritten.refused };
  }
  return { target, headers: rewritten.headers };
}

/** Directly, or as an absolute URL through the proxy that the host must use. */
function route(
  { access, connection, agent }: Session,
  {
    target,
    headers,
    path,
    authority,
  }: { target: Target; headers: string[]; path: string; authority: string | undefined },
): Pick<Forwarded, "path" | "headers" | "via"> {
  const host = target.name ?? target.address ?? "";
  const proxy = access.proxies.proxyFor(host, target.port, "http");
  if (!proxy) {
    const key = agent.keyFor(`${host} ${target.port}`, () => access.connect(connection, target));
    return { path, headers, via: { agent, key } };
  }
  const key = agent.keyFor(`proxy ${host} ${target.port}`, async () => {
    const socket = await connectToProxy(proxy);
    connection.hold(socket, grantsFor(target));
    return socket;
  });
  const own = proxy.authorization === undefined ? [] : ["Proxy-Authorization", proxy.authorization];
  const named = authority ?? (host.includes(":") ? `[${host}]` : host);
  const withPort = /:\d+$/.test(named) ? named : `${named}:${target.port}`;
  return {
    path: `http://${withPort}${path === "*" ? "" : path}`,
    headers: [...headers, ...own],
    via: { agent, key },
  };
}

function serveGateway(
  { access, connection }: Session,
  request: http.IncomingMessage,
  response: http.ServerResponse,
  { path, expectsContinue }: { path: string; expectsContinue: boolean },
): void {
  const found = access.interceptor.gateway(path, access.secrets);
  if (!found || "refused" in found) {
    const text = found?.refused ?? "The path must begin with the name of a secret of this sandbox";
    answerText(response, found ? 403 : 404, text);
    return;
  }
  const { name, port, path: targetPath, headers, response: filter } = found.target;
  const checked = access.targetFor({ port }, { name });
  if ("refused" in checked) {
    access.deny(checked.refused, { via: "gateway", method: request.method });
    answerText(response, 403, refusalText(checked.refused));
    return;
  }
  const replaced = new Set([...headerPairs(headers)].map(([header]) => header.toLowerCase()));
  const rest = withoutHeaders(endToEnd(request.rawHeaders), replaced);
  access.interceptor
    .connectTls(name, port, access.contextFor(connection))
    .then((socket) =>
      forward(request, response, {
        method: request.method ?? "GET",
        path: targetPath,
        headers: [...headers, ...rest],
        via: { socket },
        charge: (direction, bytes) => access.charge(direction, bytes),
        filter,
        expectsContinue,
        onDone: (outcome) => report({ access }, request, { name, port }, outcome, "gateway"),
      }),
    )
    .catch((error: unknown) => {
      access.log({
        event: "failed",
        protocol: "tcp",
        via: "gateway",
        name,
        port,
        reason: errorMessage(error),
      });
      answerText(response, 502, errorMessage(error));
    });
}

function isForbidden(error: unknown): boolean {
  return error instanceof AppError && error.code === "forbidden";
}

function report(
  { access }: Pick<Session, "access">,
  request: http.IncomingMessage,
  { name, address, port }: Target,
  outcome: { status: number } | { problem: string },
  via: "http" | "gateway" = "http",
): void {
  const { method } = request;
  const facts = { protocol: "tcp", via, name, address, port, method } as const;
  if ("status" in outcome) access.log({ event: "request", ...facts, status: outcome.status });
  else access.log({ event: "failed", ...facts, reason: outcome.problem });
}

function requestHead({ method, url, httpVersion }: http.IncomingMessage, headers: readonly string[]): string {
  const lines = [...headerPairs(headers)].map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${url} HTTP/${httpVersion}\r\n${lines.join("")}\r\n`;
}

function refuseSocket(guest: net.Socket, status: number, text: string): void {
  const body = Buffer.from(`forkd: ${text}\n`);
  const head = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? ""}`,
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${body.length}`,
    "Connection: close",
  ];
  if (guest.destroyed) return;
  guest.end(Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), body]));
  // What the guest still sends is not read.
  guest.resume();
  guest.setTimeout(5000, () => guest.destroy());
}
