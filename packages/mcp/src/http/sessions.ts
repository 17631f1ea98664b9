/**
 * Sessions of clients that speak the protocol revisions with sessions. Their number is bounded. A session ends
 * when its client ends it, after an idle time, when another needs its place, or with the server; its open calls
 * end with it.
 */
import { randomUUID } from "node:crypto";
import {
  isInitializeRequest,
  isJSONRPCRequest,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import { AppError } from "@forkd/contract/wire";
import type { ServeOptions } from "../options.ts";
import { makeServer } from "../server.ts";
import type { Caller } from "./callers.ts";

export type SessionLimits = { readonly most: number; readonly idleMs: number };

const defaults: SessionLimits = { most: 64, idleMs: 30 * 60 * 1000 };

type Session = {
  readonly id: string;
  readonly callerId: string;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  readonly close: () => Promise<void>;
  /** Requests whose answer is not complete, the stream of notifications among them. */
  open: number;
  usedAt: number;
};

export class Sessions {
  readonly #options: ServeOptions;
  readonly #limits: SessionLimits;
  readonly #sessions = new Map<string, Session>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: ServeOptions, limits: Partial<SessionLimits> = {}) {
    this.#options = options;
    this.#limits = { ...defaults, ...limits };
    this.#timer = setInterval(() => void this.#endIdle(), Math.min(this.#limits.idleMs, 60_000)).unref();
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** `ended` aborts when the connection of the request closes before its answer is complete. */
  async handle(
    caller: Caller,
    request: Request,
    parts: { body: unknown; ended: AbortSignal; done: Promise<void> },
  ): Promise<Response> {
    const { body, ended, done } = parts;
    const id = request.headers.get("mcp-session-id") ?? undefined;
    const session = id === undefined ? await this.#begin(caller, body) : this.#find(caller, id);
    if (session === undefined)
      return refusal(404, "There is no such session. Start a new one with initialize.");
    session.open++;
    session.usedAt = performance.now();
    void done.then(() => {
      session.open--;
      session.usedAt = performance.now();
    });
    ended.addEventListener("abort", () => cancelCalls(session, body), { once: true });
    return session.transport.handleRequest(request, body === undefined ? {} : { parsedBody: body });
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all([...this.#sessions.values()].map((session) => session.close()));
  }

  /** The session of another caller does not exist for this one. */
  #find(caller: Caller, id: string): Session | undefined {
    const session = this.#sessions.get(id);
    return session?.callerId === caller.id ? session : undefined;
  }

  async #begin(caller: Caller, body: unknown): Promise<Session> {
    const [first] = [body].flat();
    if (!isInitializeRequest(first))
      throw new AppError(
        "invalid_request",
        "The request has no session: the header Mcp-Session-Id is missing",
      );
    await this.#makeRoom();
    const { version, log } = this.#options;
    const id = randomUUID();
    const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: () => id });
    const server = makeServer(caller.backend, { version, log });
    server.server.onclose = () => this.#sessions.delete(id);
    const session = {
      id,
      callerId: caller.id,
      transport,
      close: () => server.close(),
      open: 0,
      usedAt: performance.now(),
    };
    await server.connect(transport);
    this.#sessions.set(id, session);
    return session;
  }

  async #makeRoom(): Promise<void> {
    if (this.#sessions.size < this.#limits.most) return;
    const [oldest] = [...this.#sessions.values()]
      .filter(({ open }) => open === 0)
      .sort((a, b) => a.usedAt - b.usedAt);
    if (oldest === undefined)
      throw new AppError("capacity_exhausted", `All ${this.#limits.most} sessions of this server are in use`);
    this.#sessions.delete(oldest.id);
    await oldest.close();
  }

  async #endIdle(): Promise<void> {
    const before = performance.now() - this.#limits.idleMs;
    for (const session of this.#sessions.values())
      if (session.open === 0 && session.usedAt < before) await session.close();
  }
}

/** Without the connection their answers can no longer be delivered, so the calls end. */
function cancelCalls({ transport }: Session, body: unknown): void {
  for (const message of [body].flat())
    if (isJSONRPCRequest(message))
      transport.onmessage?.({
        jsonrpc: "2.0",
        method: "notifications/cancelled",
        params: { requestId: message.id, reason: "The client closed the connection" },
      });
}

/** An answer in the form of the protocol. */
export function refusal(status: number, message: string, headers: Record<string, string> = {}): Response {
  const error = { jsonrpc: "2.0", error: { code: -32000, message }, id: null };
  return Response.json(error, { status, headers });
}
