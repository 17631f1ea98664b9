/**
 * One registry: requests with authorization, redirects and error answers. Retries are the caller's, who knows
 * what can be repeated.
 */
import { SharedTask } from "@forkd/base";
import { errorMessage, type Remedy } from "@forkd/contract";
import { Authorizer } from "./auth/authorizer.ts";
import type { Credentials } from "./credentials/credentials.ts";
import { broken, denied, missing, quoted, RegistryTrouble, unknownHost, unreachable } from "./errors.ts";
import { InsideAddress, isLoopback } from "./http/address.ts";
import { discard, readErrorText } from "./http/body.ts";
import { ProxyRefusal } from "./http/proxy.ts";
import { retryAfterMs } from "./http/retry.ts";
import type { Incoming, Outgoing, Transport } from "./http/transport.ts";

type HostOptions = {
  /** `HOST[:PORT]`, or the URL of a mirror without a path */
  readonly name: string;
  readonly transport: Transport;
  readonly credentials: (() => Promise<Credentials | undefined>) | undefined;
  readonly plainHttp: boolean;
  readonly silenceMs: number;
};

type HostRequest = {
  readonly method: Outgoing["method"];
  /** below `/v2/`, or the absolute URL that an earlier answer named */
  readonly target: string | URL;
  /** "Cannot read the manifest of …", for messages */
  readonly what: string;
  readonly scopes?: readonly string[];
  readonly headers?: Readonly<Record<string, string>>;
  /** called again when the request is repeated with authorization */
  readonly body?: (() => Outgoing["body"]) | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly silenceMs?: number | undefined;
  /** what helps if it is not there */
  readonly ifMissing?: Remedy | undefined;
  /** statuses that are not errors; default: 2xx */
  readonly accept?: readonly number[];
};

const maxRedirects = 5;
const redirects = [301, 302, 303, 307, 308];
const hubApi = "registry-1.docker.io";

export class RegistryHost {
  /** for messages */
  readonly name: string;
  readonly #options: HostOptions;
  readonly #authorizer: Authorizer;
  #origin: SharedTask<URL> | undefined;

  constructor(options: HostOptions) {
    this.#options = options;
    this.name = options.name.replace(/^https?:\/\//, "");
    this.#authorizer = new Authorizer({
      registry: this.name,
      credentials: options.credentials ?? (() => Promise.resolve(undefined)),
      isPlainAllowed: (url) => this.#isPlainAllowed(url),
      send: (url, outgoing) => this.#follow(url, { silenceMs: options.silenceMs, ...outgoing }),
    });
  }

  /** Sends the request, with authorization if the registry asks for it. Other answers than `accept` are errors. */
  async request(request: HostRequest): Promise<Incoming> {
    const { what, scopes = [], signal } = request;
    try {
      const origin = await this.#findOrigin(signal);
      const url =
        typeof request.target === "string" ? new URL(`/v2/${request.target}`, origin) : request.target;
      for (let attempt = 1; ; attempt++) {
        // An upload may be sent to another host, which gets no credentials.
        const header =
          url.origin === origin.origin ? await this.#authorizer.header(scopes, signal) : undefined;
        const incoming = await this.#follow(url, {
          method: request.method,
          headers: { ...request.headers, ...(header !== undefined && { authorization: header }) },
          body: request.body?.(),
          signal,
          silenceMs: request.silenceMs ?? this.#options.silenceMs,
        });
        if (isAccepted(incoming.status, request.accept)) return incoming;
        if (incoming.status !== 401 || attempt === 3 || url.origin !== origin.origin)
          throw await this.#explain(request, incoming);
        await this.#authorizer.learn(incoming, scopes, header !== undefined);
        discard(incoming);
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw error instanceof RegistryTrouble ? error : explainFailure(what, this.name, error);
    }
  }

  /** True once the registry has asked for authorization. */
  get asksForCredentials(): boolean {
    return this.#authorizer.wasAsked;
  }

  /** A registry on this host may send the client without TLS to this host, and not into the network. */
  #isPlainAllowed(url: URL): boolean {
    const { plainHttp, name } = this.#options;
    if (plainHttp) return true;
    return isLoopback(this.name) ? isLoopback(url.host) : name.startsWith("http://");
  }

  /** A registry on this host may have TLS or not: the first request finds out. */
  async #findOrigin(signal: AbortSignal | undefined): Promise<URL> {
    const { name, plainHttp } = this.#options;
    if (/^https?:\/\//.test(name)) return new URL(name);
    const host = this.name === "docker.io" ? hubApi : this.name;
    if (plainHttp) return new URL(`http://${host}`);
    if (!isLoopback(host)) return new URL(`https://${host}`);
    if (this.#origin === undefined || this.#origin.isAbandoned)
      this.#origin = new SharedTask((ends) => this.#probe(host, ends));
    try {
      return await this.#origin.wait(signal);
    } catch (error) {
      this.#origin = undefined;
      throw error;
    }
  }

  async #probe(host: string, signal: AbortSignal): Promise<URL> {
    const url = new URL(`https://${host}/v2/`);
    const { transport, silenceMs } = this.#options;
    try {
      discard(await transport.send(url, { method: "GET", headers: {}, signal, silenceMs }));
      return new URL(url.origin);
    } catch (error) {
      // The peer does not speak TLS. A certificate that is not trusted is another error.
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      if (
        code === "EPROTO" ||
        code === "ERR_SSL_WRONG_VERSION_NUMBER" ||
        code === "ERR_SSL_PACKET_LENGTH_TOO_LONG"
      )
        return new URL(`http://${host}`);
      throw error;
    }
  }

  /** Follows redirects of reads. Another origin gets no credentials, and TLS is not given up. */
  async #follow(start: URL, outgoing: Outgoing): Promise<Incoming> {
    let [url, { headers }] = [start, outgoing];
    for (let hops = 0; ; hops++) {
      const isForeign = !isLoopback(this.name) && url.hostname !== new URL(`http://${this.name}`).hostname;
      const incoming = await this.#options.transport.send(url, { ...outgoing, headers, isForeign });
      const { location } = incoming.headers;
      if (!redirects.includes(incoming.status) || location === undefined) return incoming;
      discard(incoming);
      const what = `${this.name} redirects the request`;
      if (outgoing.method !== "GET" && outgoing.method !== "HEAD") throw broken(what, "it is not a read");
      if (hops === maxRedirects) throw broken(what, `more than ${maxRedirects} times`);
      const next = this.resolve(location, url);
      if (next.origin !== url.origin) {
        const { authorization: _dropped, ...others } = headers;
        headers = others;
      }
      url = next;
    }
  }

  /** The URL of a `Location`, which may be relative and may have its own query. */
  resolve(location: string, base: URL): URL {
    // The query may be a signature.
    const what = `${this.name} names the address "${quoted(location.replace(/\?.*/s, ""))}"`;
    if (location.length > 8192 || !URL.canParse(location, base.href)) throw broken(what, "it is not a URL");
    const url = new URL(location, base);
    const isPlain = url.protocol === "http:";
    if (!isPlain && url.protocol !== "https:") throw broken(what, "it is not HTTP");
    if (isPlain && (base.protocol === "https:" || !this.#isPlainAllowed(url)))
      throw broken(what, "it has no TLS");
    url.username = url.password = url.hash = "";
    return url;
  }

  async #explain({ what, ifMissing }: HostRequest, incoming: Incoming): Promise<RegistryTrouble> {
    const { status, headers } = incoming;
    const text = await readErrorText(incoming);
    const why =
      text === undefined
        ? `${incoming.url.host} answers with status ${status}`
        : `${text} (status ${status})`;
    if (status === 401 || status === 403) return denied(what, this.name, why);
    const options = { status, retryAfterMs: retryAfterMs(headers["retry-after"]) };
    if (status === 404) return missing(what, why, ifMissing);
    const isTransient = status === 408 || status === 425 || status === 429 || status >= 500;
    return new RegistryTrouble(
      isTransient && status !== 501 ? "registry_unreachable" : "registry_failed",
      `${what}: ${why}`,
      options,
    );
  }
}

function isAccepted(status: number, accept: readonly number[] | undefined): boolean {
  return accept ? accept.includes(status) : status >= 200 && status < 300;
}

/** Certificates do not become valid by trying again; connections may. */
function explainFailure(what: string, registry: string, error: unknown): unknown {
  if (error instanceof Error && error.name === "ForkdError") return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (error instanceof ProxyRefusal && error.status < 500) return broken(what, error.message);
  if (error instanceof InsideAddress) return broken(what, `${registry} sends the client to ${error.message}`);
  if (code === "ENOTFOUND" && error instanceof Error && "hostname" in error)
    return unknownHost(what, String(error.hostname));
  if (/CERT|SIGNATURE|ERR_TLS|SELF_SIGNED|ERR_SSL|EPROTO/.test(code))
    return broken(what, `the TLS connection to ${registry} failed: ${errorMessage(error)}`);
  return unreachable(what, error);
}
