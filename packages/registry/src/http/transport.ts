/**
 * One HTTP request, with deadlines. Node's fetch() takes neither a certificate authority nor an agent, so this
 * is node:http.
 */
import { readFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { drained, proxiesOf, ProxyChoice, type UpstreamProxy } from "@forkd/base";
import { advice, AppError, errorMessage } from "@forkd/contract";
import { InsideAddress, isInsideAddress, isLoopback, lookupOutside } from "./address.ts";
import { plainThrough, TunnelAgent } from "./proxy.ts";

export type Outgoing = {
  readonly method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | OutgoingStream | undefined;
  readonly signal?: AbortSignal | undefined;
  /** how long the peer may be silent */
  readonly silenceMs: number;
  /** The registry chose this host: it must not be an address of this host. */
  readonly isForeign?: boolean | undefined;
};
type OutgoingStream = { readonly length: number; readonly pieces: AsyncIterable<Uint8Array> };

export type Incoming = {
  readonly url: URL;
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: http.IncomingMessage;
};

const maxSocketsPerHost = 16;
const idleSocketMs = 15_000;

export class Transport implements Disposable {
  readonly #caFile: string | undefined;
  readonly #environment: NodeJS.ProcessEnv;
  #proxies: ProxyChoice | undefined;
  readonly #plain = new http.Agent({ keepAlive: true, maxSockets: maxSocketsPerHost, timeout: idleSocketMs });
  #secure: Promise<https.Agent> | undefined;
  #tunnels: Promise<https.Agent> | undefined;

  /** `environment` names the proxies of this host. */
  constructor(caFile?: string, environment: NodeJS.ProcessEnv = process.env) {
    this.#caFile = caFile;
    this.#environment = environment;
  }

  /** Resolves when the head of the answer is there. The caller reads or destroys the body. */
  async send(url: URL, outgoing: Outgoing): Promise<Incoming> {
    const { method, headers, body, signal, silenceMs, isForeign = false } = outgoing;
    signal?.throwIfAborted();
    if (isForeign && isInsideAddress(url.hostname.replace(/^\[|\]$/g, "")))
      throw new InsideAddress(`"${url.hostname}", which is an address of this host`);
    const length = body === undefined ? undefined : body.length;
    const proxy = this.#proxyFor(url);
    const through = proxy && url.protocol === "http:" ? plainThrough(proxy, url) : {};
    const options: https.RequestOptions = {
      ...through,
      method,
      agent: await this.#agentFor(url, proxy),
      headers: {
        "user-agent": "forkd",
        "accept-encoding": "identity",
        ...(through.headers as Record<string, string> | undefined),
        ...headers,
        ...(length !== undefined && { "content-length": String(length) }),
      },
      timeout: silenceMs,
      ...(signal && { signal }),
      // A proxy looks up the name itself, and decides what it connects to.
      ...(isForeign && !proxy && { lookup: lookupOutside }),
    };
    const request = url.protocol === "https:" ? https.request(url, options) : http.request(url, options);
    const late = (): void => void request.destroy(new Error(`no answer for ${silenceMs / 1000} s`));
    request.on("timeout", late);
    // A head that arrives byte by byte is not silence, and has no end.
    let deadline: NodeJS.Timeout | undefined;
    request.once("finish", () => {
      if (!isAnswered) deadline = setTimeout(late, silenceMs);
    });
    const answer = new Promise<http.IncomingMessage>((resolve, reject) => {
      request.once("response", resolve);
      request.on("error", reject);
    });
    let isAnswered = false;
    answer.then(
      () => (isAnswered = true),
      () => (isAnswered = true),
    );
    if (body === undefined || body instanceof Uint8Array) request.end(body);
    else void pump(request, body.pieces, () => isAnswered);
    try {
      const response = await answer.finally(() => clearTimeout(deadline));
      // The answer came before the end of the body, so this connection cannot carry another request.
      if (!request.writableEnded) response.once("close", () => request.destroy());
      return { url, status: response.statusCode ?? 0, headers: response.headers, body: response };
    } catch (error) {
      request.destroy();
      signal?.throwIfAborted();
      throw error;
    }
  }

  /** Registries on this host are reached directly, whatever the environment says. */
  #proxyFor(url: URL): UpstreamProxy | undefined {
    if (isLoopback(url.host)) return undefined;
    this.#proxies ??= readProxies(this.#environment);
    const isSecure = url.protocol === "https:";
    const port = url.port === "" ? (isSecure ? 443 : 80) : Number(url.port);
    const host = url.hostname.replace(/^\[|\]$/g, "");
    return this.#proxies.proxyFor(host, port, isSecure ? "https" : "http");
  }

  #agentFor(url: URL, proxy: UpstreamProxy | undefined): Promise<http.Agent> {
    if (url.protocol !== "https:") return Promise.resolve(this.#plain);
    if (proxy) return (this.#tunnels ??= secureAgent(this.#caFile, proxy));
    return (this.#secure ??= secureAgent(this.#caFile));
  }

  [Symbol.dispose](): void {
    this.#plain.destroy();
    for (const agents of [this.#secure, this.#tunnels])
      agents?.then(
        (agent) => agent.destroy(),
        () => undefined,
      );
  }
}

function readProxies(environment: NodeJS.ProcessEnv): ProxyChoice {
  try {
    return new ProxyChoice(proxiesOf(environment));
  } catch (cause) {
    throw new AppError("host_not_ready", errorMessage(cause), {
      remedy: advice("Set https_proxy and http_proxy to http://HOST:PORT."),
      cause,
    });
  }
}

async function secureAgent(caFile: string | undefined, proxy?: UpstreamProxy): Promise<https.Agent> {
  const { rootCertificates } = await import("node:tls");
  const ca = caFile === undefined ? undefined : [...rootCertificates, await readAuthority(caFile)];
  const options: https.AgentOptions = {
    keepAlive: true,
    maxSockets: maxSocketsPerHost,
    timeout: idleSocketMs,
    ...(ca && { ca }),
  };
  return proxy ? new TunnelAgent(proxy, options) : new https.Agent(options);
}

async function readAuthority(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    throw new AppError("invalid_request", `Cannot read the certificate authority "${path}"`, { cause });
  }
}

async function pump(
  request: http.ClientRequest,
  pieces: AsyncIterable<Uint8Array>,
  isAnswered: () => boolean,
): Promise<void> {
  try {
    for await (const piece of pieces) {
      if (isAnswered() || request.destroyed) return;
      if (!request.write(piece)) await drained(request);
    }
    request.end();
  } catch (error) {
    request.destroy(error instanceof Error ? error : new Error(String(error)));
  }
}
