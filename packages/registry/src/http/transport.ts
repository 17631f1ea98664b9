/**
 * One HTTP request, with deadlines. Node's fetch() takes neither a certificate authority nor an agent, so this
 * is node:http.
 */
import { readFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { drained } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { InsideAddress, isInsideAddress, lookupOutside } from "./address.ts";

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
  readonly #plain = new http.Agent({ keepAlive: true, maxSockets: maxSocketsPerHost, timeout: idleSocketMs });
  #secure: Promise<https.Agent> | undefined;

  constructor(caFile?: string) {
    this.#caFile = caFile;
  }

  /** Resolves when the head of the answer is there. The caller reads or destroys the body. */
  async send(url: URL, outgoing: Outgoing): Promise<Incoming> {
    const { method, headers, body, signal, silenceMs, isForeign = false } = outgoing;
    signal?.throwIfAborted();
    if (isForeign && isInsideAddress(url.hostname.replace(/^\[|\]$/g, "")))
      throw new InsideAddress(`"${url.hostname}", which is an address of this host`);
    const length = body === undefined ? undefined : body.length;
    const options: https.RequestOptions = {
      method,
      agent: await this.#agentFor(url),
      headers: {
        "user-agent": "forkd",
        "accept-encoding": "identity",
        ...headers,
        ...(length !== undefined && { "content-length": String(length) }),
      },
      timeout: silenceMs,
      ...(signal && { signal }),
      ...(isForeign && { lookup: lookupOutside }),
    };
    const request = url.protocol === "https:" ? https.request(url, options) : http.request(url, options);
    request.on("timeout", () => request.destroy(new Error(`no answer for ${silenceMs / 1000} s`)));
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
      const response = await answer;
      // The answer came before the end of the body, so this connection cannot carry another request.
      if (!request.writableEnded) response.once("close", () => request.destroy());
      return { url, status: response.statusCode ?? 0, headers: response.headers, body: response };
    } catch (error) {
      request.destroy();
      signal?.throwIfAborted();
      throw error;
    }
  }

  #agentFor(url: URL): Promise<http.Agent> {
    if (url.protocol !== "https:") return Promise.resolve(this.#plain);
    this.#secure ??= secureAgent(this.#caFile);
    return this.#secure;
  }

  [Symbol.dispose](): void {
    this.#plain.destroy();
    this.#secure?.then(
      (agent) => agent.destroy(),
      () => undefined,
    );
  }
}

async function secureAgent(caFile: string | undefined): Promise<https.Agent> {
  const { rootCertificates } = await import("node:tls");
  const ca = caFile === undefined ? undefined : [...rootCertificates, await readAuthority(caFile)];
  return new https.Agent({
    keepAlive: true,
    maxSockets: maxSocketsPerHost,
    timeout: idleSocketMs,
    ...(ca && { ca }),
  });
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
