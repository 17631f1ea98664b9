/**
 * The seam between the proxy and what knows secrets. The proxy accepts, decides, connects and counts; an
 * Interceptor opens TLS for hosts with a secret and replaces placeholders.
 */
import type net from "node:net";
import type tls from "node:tls";
import type { Decision, LogEntry, MachineSecret } from "../types.ts";

/** `in`: towards the guest. `out`: from the guest. */
export type Direction = "in" | "out";

/** What an interceptor may do on behalf of one machine. */
export interface InterceptContext {
  readonly machine: string;
  /** The secrets as they are now; read it again for each request, because they can change. */
  readonly secrets: readonly MachineSecret[];
  /** Whether the machine may connect to this name over TCP. Writes no log entry. */
  decide(name: string, port: number): Decision;
  /**
   * A plain TCP connection to the name, resolved and pinned on the host, each address checked against the policy.
   * Ends when the policy no longer allows it. Rejects with an AppError: `forbidden` (the message names the rule
   * to add) or `engine_failed` (cannot be reached).
   */
  connect(name: string, port: number): Promise<net.Socket>;
  /**
   * Counts bytes of the guest. If the machine is above its rate, returns a promise: wait for it before reading
   * more. Throws an AppError `forbidden` if the machine has used up its bytes. `pump()` in pump.ts does this.
   */
  charge(direction: Direction, bytes: number): Promise<void> | undefined;
  /** `time` is added. */
  log(entry: Omit<LogEntry, "time">): void;
}

export type RewriteResult = { readonly headers: string[] } | { readonly refused: string };

/**
 * Replaces the values of secrets in one response by their placeholders, so that a host that echoes a request
 * does not hand a value to the guest. The body keeps its length. Must see the body without Content-Encoding.
 */
export interface ResponseFilter {
  /** raw headers (name, value, name, value …), or trailers */
  headers(rawHeaders: readonly string[]): string[];
  /** The bytes to send for this chunk. Holds bytes back only while they may be the start of a value. */
  push(chunk: Buffer): Buffer;
  /** The bytes that are still held back. */
  end(): Buffer;
}

export type GatewayTarget = {
  readonly name: string;
  readonly port: number;
  /** with query */
  readonly path: string;
  /** raw headers (name, value, name, value …) that replace those of the same name in the guest's request */
  readonly headers: readonly string[];
  /** for the response to this request */
  readonly response: ResponseFilter;
};

export interface Interceptor {
  /** Whether TLS to this name must be opened: one of the secrets names it as a host. */
  handlesTls(name: string, port: number, secrets: readonly MachineSecret[]): boolean;
  /**
   * Takes over a guest's connection that begins with a TLS hello for `name`. `head` holds the bytes that were
   * read already. The policy allows `name`. Destroys the socket when it is done, on every path.
   */
  tls(socket: net.Socket, head: Buffer, name: string, port: number, context: InterceptContext): void;
  /**
   * For a plain HTTP request: `rawHeaders` (name, value, name, value …) as they may be sent to `host`. Refuses a
   * request that carries a placeholder which is not for this host.
   */
  rewriteRequest(
    rawHeaders: readonly string[],
    host: string,
    secrets: readonly MachineSecret[],
  ): RewriteResult;
  /**
   * For a plain HTTP request to `gatewayHost`: what the path stands for. `undefined` if the path names no secret
   * of the machine. The proxy checks the target against the policy and connects with connectTls().
   */
  gateway(
    path: string,
    secrets: readonly MachineSecret[],
  ): { target: GatewayTarget } | { refused: string } | undefined;
  /** A TLS connection over context.connect(), with HTTP/1.1, whose certificate was verified for `name`. */
  connectTls(name: string, port: number, context: InterceptContext): Promise<tls.TLSSocket>;
}

/** The name at which a guest finds the gateway, by plain HTTP. It resolves if the machine has a secret. */
export const gatewayHost = "secrets.internal";

/** For a proxy without secrets. */
export const noInterceptor: Interceptor = {
  handlesTls: () => false,
  tls: (socket) => socket.destroy(),
  rewriteRequest: (rawHeaders) => ({ headers: [...rawHeaders] }),
  gateway: () => undefined,
  connectTls: () => Promise.reject(new Error("This proxy has no secrets")),
};
