/**
 * Requests of E2B's clients. Those to a sandbox name it in a header, in their host name or by a signature; all
 * others are for the control plane and need a key.
 */
import type { IncomingMessage } from "node:http";
import { AppError, contentBodyBytes, toAppError } from "@forkd/contract";
import {
  controlRoutes,
  isOwnPort,
  noSuchRoute,
  routeOf,
  sendAnswer,
  sendFailure,
  type ControlName,
  type ControlRoute,
  type E2b,
  type Routed,
  type Target,
} from "@forkd/e2b";
import type { Gate } from "../access/gate.ts";
import { markIdentified } from "../access/strangers.ts";
import { readJsonObject } from "../http/body/json-body.ts";
import { matcher, pathOf } from "../http/match.ts";
import type { Connection, Plan } from "../http/plan.ts";
import type { PortServer } from "../ports/port-server.ts";
import { isToken } from "../ports/port-token.ts";
import { apiKeyOf } from "./api-key.ts";
import { refuseInSandbox } from "./refuse.ts";

type Options = { readonly e2b: E2b; readonly ports: PortServer; readonly gate: Gate };

const findRoute = matcher<ControlName>(controlRoutes);
const usual = { log: "info", endless: false } as const;

export class E2bServer {
  readonly #e2b: E2b;
  readonly #ports: PortServer;
  readonly #gate: Gate;

  constructor({ e2b, ports, gate }: Options) {
    this.#e2b = e2b;
    this.#ports = ports;
    this.#gate = gate;
  }

  /** undefined: the request is not E2B's. */
  find(incoming: IncomingMessage): Routed | undefined {
    const { headers, url = "" } = incoming;
    if (headers["e2b-sandbox-id"] === undefined) {
      const port = this.#ports.find(incoming);
      if (port?.kind === "host" && this.#records.get(port.target.id))
        return { kind: "sandbox", target: port.target, isByHost: true };
      if (port || url.startsWith("/v1/")) return undefined;
    }
    const path = pathOf(url, headers.host || "localhost");
    return path === undefined ? undefined : routeOf(incoming, path, this.#records);
  }

  planOf(connection: Connection, routed: Routed): Plan {
    switch (routed.kind) {
      case "control":
        return this.#control(connection, routed.path);
      case "upload":
        return this.#upload(connection, routed);
      case "signed":
        return this.#data(connection, routed.target, routed.kind);
      case "sandbox":
        return isOwnPort(routed.target.port)
          ? this.#data(connection, routed.target, routed.isByHost ? "host" : "header")
          : this.#port(connection, routed);
    }
  }

  get #records() {
    return this.#e2b.plane.records;
  }

  /** A server in the guest. */
  #port(connection: Connection, { target, isByHost }: Extract<Routed, { kind: "sandbox" }>): Plan {
    const { incoming, via } = connection;
    const path = (incoming.url ?? "").replace(/^https?:\/\/[^/?#]*/i, "");
    const plan = this.#ports.planOf(connection, { kind: "host", target, path: path || "/" });
    return {
      ...plan,
      admit: (trail) => {
        // By its header a request comes under the daemon's own name, which pages must not use.
        if (!isByHost) this.#gate.identify(incoming, via, "open");
        plan.admit?.(trail);
      },
      refuse: (error) => refuseInSandbox(connection.outgoing, target, error),
    };
  }

  /** The agent and the interpreter. Their tokens are checked where it is known which requests need them. */
  #data({ incoming, outgoing, via }: Connection, target: Target, by: "header" | "host" | "signed"): Plan {
    const isSigned = by === "signed";
    const isRead = incoming.method === "GET" || incoming.method === "HEAD";
    const audit = isRead ? ("read" as const) : ("change" as const);
    return {
      name: "e2bSandbox",
      route: { scope: "open", audit, log: "debug", endless: true },
      refuse: (error) => refuseInSandbox(outgoing, target, error),
      admit: (trail) => {
        trail.input({ path: "/sandboxes/{id}", audit }, { id: target.id });
        // A signed URL is its own permission, and may be opened by a link on any page. The host name of a port
        // is not the daemon's own, by which pages of guests could be taken for its own.
        if (by === "header") this.#gate.identify(incoming, via, "open");
        const refused = (error: AppError) => this.#gate.refused(incoming, via, error);
        if (isSigned && target.id === "") throw refused(new AppError("unauthenticated", "invalid signature"));
        const record = this.#records.get(target.id);
        if (!record)
          throw refused(new AppError("sandbox_not_found", `Cannot find sandbox "${target.id.slice(0, 64)}"`));
        const given = incoming.headers["x-access-token"];
        if (typeof given === "string" && record.token !== undefined) {
          if (!isToken(given, record.token))
            throw refused(new AppError("unauthenticated", "The access token of the sandbox is wrong"));
          markIdentified(incoming.socket);
        }
        this.#gate.limit(via, `e2b ${target.id}`);
      },
      run: (context, trail) => {
        const note = (command: object) =>
          trail.input({ path: "/sandboxes/{id}", audit: "command" }, { id: target.id, ...command });
        return this.#e2b.data.serve({ incoming, outgoing, context: { ...context, note } }, target);
      },
    };
  }

  #control({ incoming, outgoing, via }: Connection, path: string): Plan {
    const method = incoming.method ?? "";
    const { match, allow } = findRoute(method, path);
    const refuse: Plan["refuse"] = (error) => sendFailure(outgoing, error);
    const route: ControlRoute | undefined = match && controlRoutes[match.name];
    const scope = route?.scope ?? "read";
    const audit = route?.audit ?? "read";
    return {
      name: match?.name ?? "e2bNone",
      route: { ...usual, scope, audit },
      refuse,
      admit: (trail) => {
        trail.principal = this.#gate.identify(incoming, via, scope, apiKeyOf(incoming.headers));
      },
      run: async (context, trail) => {
        if (!match || !route) throw noSuchRoute(method, path, allow);
        const { parameters } = match;
        const body =
          method === "GET" || method === "HEAD"
            ? {}
            : await readJsonObject({ incoming, outgoing }, { maxBytes: contentBodyBytes });
        trail.input({ path: route.path, audit }, parameters);
        const query = new URLSearchParams(/\?(.*)$/s.exec(incoming.url ?? "")?.[1] ?? "");
        const answer = await route.handle(this.#e2b.plane, { parameters, query, body, context, incoming });
        trail.result(madeBy(answer.body));
        sendAnswer(outgoing, answer);
        return undefined;
      },
    };
  }

  #upload(
    { incoming, outgoing, via }: Connection,
    { hash, token }: Extract<Routed, { kind: "upload" }>,
  ): Plan {
    const { uploads } = this.#e2b.plane;
    return {
      name: "e2bUpload",
      route: { scope: "open", audit: "change", log: "info", endless: true },
      refuse: (error) => sendFailure(outgoing, error),
      admit: () => {
        this.#gate.identify(incoming, via, "open");
        if (!uploads.isPermitted(hash, token))
          throw this.#gate.refused(
            incoming,
            via,
            new AppError("unauthenticated", "The address of the upload is not valid, or no longer"),
          );
        markIdentified(incoming.socket);
      },
      run: async ({ signal }) => {
        try {
          await uploads.take(hash, incoming);
        } catch (error) {
          if (signal.aborted) throw new AppError("cancelled", "The client went away");
          // The client is known by its address of the upload, so it may send the rest before it reads this.
          const failure = toAppError(error);
          sendFailure(outgoing, failure);
          return failure;
        }
        sendAnswer(outgoing, { status: 200, body: {} });
        return undefined;
      },
    };
  }
}

/** Sandboxes and snapshots in an answer, for the audit log. */
function madeBy(body: unknown): unknown {
  if (Array.isArray(body)) return body.map((each) => madeBy((each as { sandbox?: unknown } | null)?.sandbox));
  if (typeof body !== "object" || body === null) return undefined;
  if ("sandboxID" in body) return { id: body.sandboxID };
  return "snapshotID" in body ? { tag: body.snapshotID } : undefined;
}
