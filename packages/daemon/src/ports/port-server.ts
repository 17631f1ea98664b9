/**
 * Requests for ports of sandboxes. By the host name of a port, for which the port must be open and the request
 * have its token; or by a path of the API, for which the caller needs the scope `run`.
 */
import type { IncomingMessage } from "node:http";
import { advice, AppError, passedRoutes, portToken, proxyPath, tunnelProtocol } from "@forkd/contract";
import type { OpenedPort, PortInfo } from "@forkd/contract";
import type { EnteredPort } from "@forkd/runtime";
import { parseHost } from "../access/browser-guard.ts";
import type { Gate } from "../access/gate.ts";
import { addressOf } from "../access/peer.ts";
import { isPortName, portOfName, urlOfPort, type PortsDomain, type PortTarget } from "../access/port-name.ts";
import { markIdentified } from "../access/strangers.ts";
import { apiKeyOf } from "../e2b/api-key.ts";
import { isLoopback } from "../settings/exposure.ts";
import type { RequestContext } from "../http/handlers.ts";
import type { Connection, Plan } from "../http/plan.ts";
import { forward } from "./forward.ts";
import type { PortAccess } from "./headers.ts";
import { PortAgent } from "./port-agent.ts";
import { givenTokens, isToken, redirectTarget, tokenCookie, withoutToken } from "./port-token.ts";
import { refusePort } from "./refuse.ts";
import { connectTunnel } from "./tunnel.ts";

/** What the server needs of the runtime. */
export type PortBackend = {
  /** Throws `sandbox_not_found` or `port_not_open`. */
  find(target: PortTarget): { readonly public: boolean; readonly token: string };
  enter(target: PortTarget, context: RequestContext): Promise<EnteredPort>;
  /** Calls `cut` when the port is closed, until the returned function is called. */
  hold(target: PortTarget, cut: () => void): () => void;
};

/** What a request is for. */
type PortRequest =
  | { readonly kind: "host"; readonly target: PortTarget; readonly path: string }
  | { readonly kind: "path"; readonly target: PortTarget; readonly path: string }
  | { readonly kind: "tcp"; readonly target: PortTarget }
  /** by a host name that may look like one of a guest's pages, but leads nowhere */
  | { readonly kind: "nowhere"; readonly host: string };

const proxied = /^\/v1\/sandboxes\/(sb-[0-9a-f]{24})\/ports\/([1-9]\d{0,4})\/proxy(?:(\/[^?]*)?(\?.*)?)$/s;
const tunnelled = /^\/v1\/sandboxes\/(sb-[0-9a-f]{24})\/ports\/([1-9]\d{0,4})\/tcp$/;

export class PortServer {
  readonly #backend: PortBackend;
  readonly #domains: readonly PortsDomain[];
  readonly #gate: Gate;
  readonly #agents = new WeakMap<object, Map<number, PortAgent>>();
  /** connections of which the audit log has a line, and the port that it is about */
  readonly #audited = new WeakMap<object, string>();
  readonly #stopping = new AbortController();
  readonly #expecting = new WeakSet<IncomingMessage>();
  /** address of the daemon, once it listens on TCP */
  url: string | undefined;

  constructor(options: { backend: PortBackend; domains: readonly PortsDomain[]; gate: Gate }) {
    this.#backend = options.backend;
    this.#domains = options.domains;
    this.#gate = options.gate;
  }

  /** Closes connections that would stay open: tunnels and WebSockets. */
  stop(): void {
    this.#stopping.abort(new AppError("daemon_stopping", "The daemon is stopping"));
  }

  /** How clients reach a port. */
  describe<T extends Omit<OpenedPort | PortInfo, "url" | "path">>(
    id: string,
    info: T,
  ): T & Pick<PortInfo, "url" | "path"> {
    const url = urlOfPort({ id, port: info.port }, this.#domains[0], this.url);
    return { ...info, ...(url !== undefined && { url }), path: proxyPath(id, info.port) };
  }

  /** NAME[:PORT] after the label in the host names of ports; undefined if there are none. */
  get domain(): string | undefined {
    const url = urlOfPort({ id: "sb", port: 1 }, this.#domains[0], this.url);
    return url && new URL(url).host.replace(/^[^.]*\./, "");
  }

  /** undefined: the request is for the API. Looks at the target as it came, before dots in it are resolved. */
  find({ headers, url = "" }: IncomingMessage): PortRequest | undefined {
    const host = parseHost(headers.host ?? "")?.name;
    if (host !== undefined && isPortName(host)) {
      const target = portOfName(host, this.#domains);
      const path = url.replace(/^https?:\/\/[^/?#]*/i, "");
      return target === undefined
        ? { kind: "nowhere", host }
        : { kind: "host", target, path: path.startsWith("/") || path === "*" ? path : `/${path}` };
    }
    const [whole, id, port, path, query] = proxied.exec(url) ?? [];
    if (whole !== undefined && id !== undefined && isPort(port))
      return { kind: "path", target: { id, port: Number(port) }, path: (path ?? "/") + (query ?? "") };
    const [, tunnelId, tunnelPort] = tunnelled.exec(url) ?? [];
    if (tunnelId !== undefined && isPort(tunnelPort))
      return { kind: "tcp", target: { id: tunnelId, port: Number(tunnelPort) } };
    return undefined;
  }

  /** Whether the request may change the protocol; otherwise the header Upgrade is ignored, as HTTP permits. */
  takesUpgrade(request: PortRequest, { headers }: IncomingMessage): boolean {
    const wanted = (headers.upgrade ?? "").toLowerCase().trim();
    if (headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0")
      return false;
    if (request.kind === "tcp") return wanted === tunnelProtocol;
    // With h2c one connection would carry further requests, past the daemon.
    return (request.kind === "host" || request.kind === "path") && wanted !== "" && !/\bh2c?\b/.test(wanted);
  }

  /** The client waits for "100 Continue": whether the guest decides that. */
  takesExpect(incoming: IncomingMessage): boolean {
    const kind = this.find(incoming)?.kind;
    if (kind !== "host" && kind !== "path") return false;
    this.#expecting.add(incoming);
    return true;
  }

  planOf(connection: Connection, request: PortRequest): Plan {
    const { incoming, outgoing } = connection;
    const refuse: Plan["refuse"] = (error, requestId) => refusePort(incoming, outgoing, error, requestId);
    const isRead = incoming.method === "GET" || incoming.method === "HEAD";
    const usual = { log: "debug", endless: true, scope: "run" } as const;
    if (request.kind === "nowhere")
      return {
        name: "portHost",
        route: { ...usual, audit: "read" },
        refuse,
        admit: () => {
          throw this.#gate.refused(connection.incoming, connection.via, nowhere(request.host));
        },
        run: () => Promise.resolve(undefined),
      };
    const note = { id: request.target.id };
    if (request.kind === "tcp")
      return {
        name: "connectPort",
        route: { ...usual, audit: "change" },
        refuse,
        run: (context, trail) => {
          trail.input({ path: passedRoutes.connectPort.path, audit: "change" }, note);
          return this.#tunnel(connection, request.target, context);
        },
      };
    const audit = isRead ? ("read" as const) : ("change" as const);
    if (request.kind === "path")
      return {
        name: "proxyPort",
        route: { ...usual, audit },
        refuse,
        run: (context, trail) => {
          trail.input({ path: passedRoutes.proxyPort.path, audit }, note);
          return this.#forward(connection, { ...request, access: "path", context });
        },
      };
    const place = `${request.target.id} ${request.target.port}`;
    const isAudited = this.#audited.get(incoming.socket) === place;
    this.#audited.set(incoming.socket, place);
    let redirect: string | undefined;
    return {
      name: "portHost",
      route: { ...usual, audit },
      refuse,
      isAudited,
      admit: (trail) => {
        trail.input({ path: passedRoutes.proxyPort.path, audit }, note);
        redirect = this.#admit(connection, request.target);
      },
      run: (context) => {
        if (redirect === undefined)
          return this.#forward(connection, {
            ...request,
            path: withoutToken(request.path),
            access: "host",
            context,
          });
        outgoing.writeHead(303, {
          location: redirectTarget(request.path),
          "set-cookie": redirect,
          "cache-control": "no-store",
          "referrer-policy": "no-referrer",
          "content-length": 0,
        });
        outgoing.end();
        return Promise.resolve(undefined);
      },
    };
  }

  /** Throws if the request may not pass. Returns the cookie for a browser that brought the token in its address. */
  #admit({ incoming, via, upgrade }: Connection, target: PortTarget): string | undefined {
    const refused = (error: unknown) => this.#gate.refused(incoming, via, error);
    let port: ReturnType<PortBackend["find"]>;
    try {
      port = this.#backend.find(target);
    } catch (error) {
      throw refused(error);
    }
    const given = givenTokens(incoming.url ?? "", incoming.headers);
    const byQuery = isToken(given.query, port.token);
    const byHeader = isToken(given.header, port.token);
    const byCookie =
      given.cookies.some((each) => isToken(each, port.token)) && this.#isOwnPage(incoming, target);
    if (!port.public && !byQuery && !byHeader && !byCookie) throw refused(noToken(target, given));
    this.#gate.limit(via, `port ${target.id} ${target.port}`);
    if (!port.public) markIdentified(incoming.socket);
    const isVisit = (incoming.method === "GET" || incoming.method === "HEAD") && !upgrade;
    return byQuery && !port.public && isVisit ? tokenCookie(port.token, isHttps(incoming, via)) : undefined;
  }

  /** A cookie is sent for pages of other sandboxes too, if they have the same site. */
  #isOwnPage({ headers }: IncomingMessage, target: PortTarget): boolean {
    const { origin, "sec-fetch-site": site, "sec-fetch-mode": mode } = headers;
    if (origin !== undefined && origin !== "null") {
      const name = parseHost(origin.replace(/^https?:\/\//i, ""))?.name;
      return name !== undefined && portOfName(name, this.#domains)?.id === target.id;
    }
    return site === undefined || site === "none" || site === "same-origin" || mode === "navigate";
  }

  async #forward(
    connection: Connection,
    { target, path, access, context }: Passing,
  ): Promise<AppError | undefined> {
    const { incoming, via } = connection;
    const ending = new AbortController();
    const release =
      access === "host"
        ? this.#backend.hold(target, () => {
            ending.abort(new AppError("port_not_open", `Port ${target.port} of ${target.id} was closed`));
          })
        : () => {};
    const signals = [context.signal, ending.signal, ...(connection.upgrade ? [this.#stopping.signal] : [])];
    try {
      using entered = await this.#backend.enter(target, context);
      return await forward({
        connection,
        path,
        access,
        target,
        entered,
        agent: this.#agentOf(entered, target.port),
        peer: addressOf(incoming),
        isHttps: isHttps(incoming, via),
        hasOwnSecret: this.#gate.isOwnSecret(incoming.headers.authorization),
        hasOwnKey: this.#gate.isOwnKey(apiKeyOf(incoming.headers)),
        upgrade: connection.upgrade && incoming.headers.upgrade,
        expectsContinue: this.#expecting.has(incoming),
        signal: AbortSignal.any(signals),
      });
    } finally {
      release();
    }
  }

  async #tunnel(
    connection: Connection,
    target: PortTarget,
    context: RequestContext,
  ): Promise<AppError | undefined> {
    const { upgrade } = connection;
    if (!upgrade)
      throw new AppError(
        "invalid_request",
        `Invalid request: it needs the header Upgrade: ${tunnelProtocol}`,
      );
    using entered = await this.#backend.enter(target, context);
    const signal = AbortSignal.any([context.signal, this.#stopping.signal]);
    return await connectTunnel({ connection, upgrade, entered, signal });
  }

  #agentOf(entered: EnteredPort, port: number): PortAgent {
    const agents = this.#agents.get(entered.machine) ?? new Map<number, PortAgent>();
    this.#agents.set(entered.machine, agents);
    const agent = agents.get(port) ?? new PortAgent(entered.connect);
    agents.set(port, agent);
    return agent;
  }
}

type Passing = {
  readonly target: PortTarget;
  readonly path: string;
  readonly access: PortAccess;
  readonly context: RequestContext;
};

function isPort(text: string | undefined): boolean {
  return text !== undefined && Number(text) <= 65_535;
}

/** A proxy with TLS in front of the daemon says so; only programs on this machine are believed. */
function isHttps(incoming: IncomingMessage, via: Connection["via"]): boolean {
  if ("encrypted" in incoming.socket) return true;
  const isNear = via === "unix" || isLoopback(addressOf(incoming));
  return isNear && incoming.headers["x-forwarded-proto"] === "https";
}

function nowhere(host: string): AppError {
  return new AppError("not_found", `"${host.slice(0, 255)}" is not the address of a port`, {
    remedy: advice(
      "Addresses have the form PORT-SANDBOX.DOMAIN, with a full sandbox id and a domain of the setting ports_domain.",
    ),
  });
}

function noToken({ id, port }: PortTarget, given: ReturnType<typeof givenTokens>): AppError {
  const isGiven = given.query !== undefined || given.header !== undefined || given.cookies.length > 0;
  const why = isGiven ? "the token of the request is not valid here" : "the request has no token";
  return new AppError("unauthenticated", `Port ${port} of ${id} is not public, and ${why}`, {
    details: { id, port, header: portToken.header },
    remedy: { action: "give_port_token", id, port: String(port) },
  });
}
