/** Connections through the HTTP proxy that this host must use. */
import http from "node:http";
import https from "node:https";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import type { UpstreamProxy } from "@forkd/base";

/** The proxy does not connect to the registry. */
export class ProxyRefusal extends Error {
  readonly status: number;

  constructor({ host, port }: UpstreamProxy, status: number) {
    super(`the proxy ${host}:${port} answers with status ${status}`);
    this.status = status;
  }
}

/** The proxy may have to look up a name and to connect. */
const connectMs = 30_000;

type Connected = (error: Error | null, socket: Duplex) => void;
type Target = tls.ConnectionOptions & { host?: string; port?: number | string };

/** TLS is between this host and the registry: the proxy sees only the name of the registry. */
export class TunnelAgent extends https.Agent {
  readonly #proxy: UpstreamProxy;

  constructor(proxy: UpstreamProxy, options: https.AgentOptions) {
    super(options);
    this.#proxy = proxy;
  }

  override createConnection(target: object, connected?: Connected): undefined {
    const { host = "", port = 443 } = target as Target;
    openTunnel(this.#proxy, `${host.includes(":") ? `[${host}]` : host}:${port}`).then(
      (socket) => connected?.(null, tls.connect({ ...target, socket })),
      (error: Error) => connected?.(error, undefined as never),
    );
    return undefined;
  }
}

function openTunnel(proxy: UpstreamProxy, authority: string): Promise<Duplex> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: proxy.host,
      port: proxy.port,
      method: "CONNECT",
      path: authority,
      headers: { host: authority, ...authorizationFor(proxy) },
      agent: false,
    });
    const late = new Error(`it did not connect within ${connectMs / 1000} s`);
    const deadline = setTimeout(() => request.destroy(late), connectMs);
    request.once("close", () => clearTimeout(deadline));
    request.once("error", (cause) =>
      reject(new Error(`cannot use the proxy ${proxy.host}:${proxy.port}: ${cause.message}`, { cause })),
    );
    request.once("connect", (response, socket, head) => {
      clearTimeout(deadline);
      const { statusCode: status = 0 } = response;
      if (status < 200 || status >= 300) {
        socket.destroy();
        return reject(new ProxyRefusal(proxy, status));
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    request.end();
  });
}

/** A request without TLS goes to the proxy itself, with the whole URL as its path. */
export function plainThrough(proxy: UpstreamProxy, url: URL): http.RequestOptions {
  return {
    host: proxy.host,
    hostname: proxy.host,
    port: proxy.port,
    path: url.href,
    headers: { host: url.host, ...authorizationFor(proxy) },
  };
}

function authorizationFor({ authorization }: UpstreamProxy): Record<string, string> {
  return authorization === undefined ? {} : { "proxy-authorization": authorization };
}
