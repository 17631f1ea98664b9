/**
 * Opens TLS connections of guests to hosts that have a secret. The guest sees a certificate of the
 * installation's CA; requests are sent on over a TLS connection of our own, with values in place of
 * placeholders. All other TLS passes unopened and never gets here.
 */
import http from "node:http";
import http2 from "node:http2";
import type net from "node:net";
import tls from "node:tls";
import { normalName } from "../policy/host.ts";
import {
  gatewayHost,
  type GatewayTarget,
  type InterceptContext,
  type Interceptor,
  type RewriteResult,
} from "../proxy/intercept.ts";
import { gatewayTarget } from "../secrets/gateway.ts";
import { isHostOf } from "../secrets/hosts.ts";
import { faultInPlainHeaders } from "../secrets/placeholders.ts";
import type { MachineSecret } from "../types.ts";
import type { InstallationCa } from "./ca.ts";
import {
  forward,
  maxHeaderBytes,
  silenceMs,
  type Guest,
  type GuestRequest,
  type GuestResponse,
} from "./forward.ts";
import { forwardUpgrade } from "./upgrade.ts";
import { Upstreams } from "./upstream.ts";

const handshakeMs = 10_000;
const headersMs = 30_000;
/** A guest's connection without a request is closed after that. */
const idleMs = 120_000;
const maxStreams = 64;

/** Requests find their guest by their socket, also through the wrappers that HTTP/2 puts around it. */
type GuestSocket = tls.TLSSocket & { readonly guest: Guest };

type TlsInterceptorOptions = {
  readonly ca: Pick<InstallationCa, "contextFor">;
  /** certificates of the CAs that hosts outside are verified with; systemRoots() */
  readonly roots: readonly string[];
  /** for tests */
  readonly headersMs?: number | undefined;
};

export class TlsInterceptor implements Interceptor, Disposable {
  readonly #ca: Pick<InstallationCa, "contextFor">;
  readonly #upstreams: Upstreams;
  readonly #http1: http.Server;
  readonly #http2: http2.Http2Server;
  readonly #guests = new Set<net.Socket>();

  constructor({ ca, roots, headersMs: forHeaders = headersMs }: TlsInterceptorOptions) {
    this.#ca = ca;
    this.#upstreams = new Upstreams(roots);
    this.#http1 = http.createServer({
      maxHeaderSize: maxHeaderBytes,
      headersTimeout: forHeaders,
      connectionsCheckingInterval: Math.min(forHeaders, 10_000),
      // Uploads may take as long as they make progress.
      requestTimeout: 0,
      keepAliveTimeout: idleMs,
    });
    this.#http1.setTimeout(silenceMs);
    // Node starts to check the time for headers when a server listens, and this one never does.
    this.#http1.emit("listening");
    this.#http1.on("upgrade", (req, _socket, head) => {
      const socket = req.socket as GuestSocket;
      forwardUpgrade(req, { socket, head, guest: socket.guest }).catch(() => socket.destroy());
    });
    this.#http2 = http2.createServer({
      maxSessionMemory: 4,
      peerMaxConcurrentStreams: maxStreams,
      settings: {
        enablePush: false,
        maxConcurrentStreams: maxStreams,
        maxHeaderListSize: maxHeaderBytes,
        initialWindowSize: 256 * 1024,
      },
    });
    this.#http2.on("session", (session) => {
      session.on("error", () => session.destroy());
      closeWhenIdle(session);
    });
    for (const server of [this.#http1, this.#http2] as http.Server[]) {
      server.on("request", (req, res) => this.#forward(req, res, false));
      server.on("checkContinue", (req, res) => this.#forward(req, res, true));
    }
  }

  handlesTls(name: string, port: number, secrets: readonly MachineSecret[]): boolean {
    return secrets.some(({ hosts }) => isHostOf(hosts, name, port));
  }

  tls(socket: net.Socket, head: Buffer, name: string, port: number, context: InterceptContext): void {
    socket.on("error", () => socket.destroy());
    this.#guests.add(socket);
    const agent = this.#upstreams.agent(name, port, context);
    socket.once("close", () => {
      this.#guests.delete(socket);
      agent.destroy();
    });
    const failed = (reason: string): void => {
      context.log({ event: "failed", protocol: "tcp", via: "intercepted", name, port, reason });
      socket.destroy();
    };
    // One for each connection, because nothing public leads from a TLS socket to the socket below it.
    const server = tls.createServer({
      SNICallback: (_, done) => done(null, this.#ca.contextFor(name)),
      ALPNProtocols: ["h2", "http/1.1"],
      handshakeTimeout: handshakeMs,
    });
    server.once("tlsClientError", (error) => failed(handshakeFault(error)));
    server.once("secureConnection", (secure) => {
      secure.on("error", () => secure.destroy());
      secure.once("close", () => socket.destroy());
      // The proxy read the name from the same hello: a difference means that the two read it differently.
      if (normalName(String(secure.servername || "")) !== name)
        return failed("The TLS hello names two different hosts");
      const guest: Guest = { host: { name, port }, context, agent };
      (secure.alpnProtocol === "h2" ? this.#http2 : this.#http1).emit(
        "connection",
        Object.assign(secure, { guest }),
      );
    });
    // The TLS socket reads what is put back here first. Nothing may resume the socket in between.
    if (head.length > 0) socket.unshift(head);
    server.emit("connection", socket);
  }

  rewriteRequest(
    rawHeaders: readonly string[],
    host: string,
    secrets: readonly MachineSecret[],
  ): RewriteResult {
    // Clients of the gateway may send a placeholder as their key. The gateway replaces the header.
    const fault = host === gatewayHost ? undefined : faultInPlainHeaders(rawHeaders, host, secrets);
    return fault === undefined ? { headers: [...rawHeaders] } : { refused: fault };
  }

  gateway(
    path: string,
    secrets: readonly MachineSecret[],
  ): { target: GatewayTarget } | { refused: string } | undefined {
    return gatewayTarget(path, secrets);
  }

  connectTls(name: string, port: number, context: InterceptContext): Promise<tls.TLSSocket> {
    return this.#upstreams.connect(name, port, context);
  }

  [Symbol.dispose](): void {
    for (const guest of this.#guests) guest.destroy();
    // Stops the check of the time for headers.
    this.#http1.close(() => undefined);
  }

  #forward(req: GuestRequest, res: GuestResponse, expectsContinue: boolean): void {
    const { guest } = req.socket as GuestSocket;
    forward(req, res, { guest, expectsContinue }).catch(() => req.socket.destroy());
  }
}

/** Open streams have their own limits. */
function closeWhenIdle(session: http2.ServerHttp2Session): void {
  let streams = 0;
  session.on("stream", (stream) => {
    streams++;
    stream.once("close", () => streams--);
  });
  const check = (): void => {
    if (streams === 0) session.destroy();
    else session.setTimeout(idleMs);
  };
  session.on("timeout", check);
  session.setTimeout(idleMs);
}

function handshakeFault(error: Error): string {
  const code = "code" in error ? String(error.code) : "";
  if (code === "ERR_TLS_HANDSHAKE_TIMEOUT") return "The guest did not finish the TLS handshake in time";
  // Some clients close without an alert when they refuse a certificate.
  const isRefusal = /ALERT_(?:UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_UNKNOWN)|ECONNRESET/.test(code);
  const hint = isRefusal
    ? ". Its program may have another trust store or accept only certain certificates"
    : "";
  return `The TLS handshake of the guest failed${code === "" ? "" : `: ${code}`}${hint}`;
}
