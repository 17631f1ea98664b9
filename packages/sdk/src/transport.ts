/** Carries requests to the daemon with `fetch`; node.ts has another transport. */
import { cancelled, fromFailure } from "./errors.ts";

/** A request for a transport. */
export type TransportRequest = {
  /** HTTP method, such as "GET". */
  readonly method: string;
  /** Path with the query. */
  readonly path: string;
  /** Headers by lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  /** Body of the request; default: none. */
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array> | undefined;
  /** Aborts the request; default: none. */
  readonly signal?: AbortSignal | undefined;
};

/** An answer. The SDK uses either `text()` or `body`, once. */
export type TransportResponse = {
  /** HTTP status. */
  readonly status: number;
  /** Headers by lower-case name; without them the SDK reads only the first page of a list. */
  readonly headers?: Readonly<Record<string, string | string[] | undefined>>;
  /** Reads the whole body as text. */
  text(): Promise<string>;
  /** Chunks of the body; leaving the iteration early closes the request. */
  readonly body: AsyncIterable<Uint8Array>;
};

/** Sends a request. Resolves for every HTTP status; rejects with `daemon_unreachable` or `cancelled`. */
export type Transport = ((request: TransportRequest) => Promise<TransportResponse>) & {
  /** Sends a request that turns its connection into raw bytes; absent where the platform cannot do that. */
  readonly tunnel?: ((request: TransportRequest) => Promise<TransportResponse | RawStream>) | undefined;
};

/** A connection with raw bytes: a `Duplex` stream of Node. */
export type RawStream = AsyncIterable<Uint8Array> & {
  /** Writes bytes; false: wait for "drain" before the next write. */
  write(bytes: Uint8Array | string): boolean;
  /** Ends this direction; the other one may continue. */
  end(bytes?: Uint8Array | string): unknown;
  /** Closes both directions. */
  destroy(error?: Error): unknown;
  /** Calls a listener for each event of the stream. */
  on(event: string, listener: (...args: never[]) => void): unknown;
  /** Calls a listener once. */
  once(event: string, listener: (...args: never[]) => void): unknown;
  /** Closes both directions at the end of an `await using` block. */
  [Symbol.asyncDispose](): Promise<void>;
};

/** The part of `fetch` that `fetchTransport()` needs. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** A transport for every runtime that has `fetch`, such as browsers. */
export function fetchTransport(options: {
  /** Address of the daemon, such as "http://127.0.0.1:8889". */
  url: string;
  /** Token or key; default: none. */
  token?: string | undefined;
  /** Replaces `fetch`; default: the global one. */
  fetch?: Fetch | undefined;
}): Transport {
  const target = options.url.replace(/\/+$/, "");
  const send: Fetch = options.fetch ?? ((url, init) => globalThis.fetch(url, init));
  const authorization = options.token === undefined ? {} : { authorization: `Bearer ${options.token}` };
  return async (request) => {
    const { signal } = request;
    if (signal?.aborted) throw cancelled(signal.reason);
    const init: RequestInit = { method: request.method, headers: { ...request.headers, ...authorization } };
    if (signal) init.signal = signal;
    if (typeof request.body === "string" || request.body instanceof Uint8Array) {
      init.body = request.body;
    } else if (request.body !== undefined) {
      init.body = streamOf(request.body);
      init.duplex = "half";
    }
    const response = await send(target + request.path, init).catch((error: unknown) => {
      throw fromFailure(error, { target, phase: "connect", signal });
    });
    const failed = (error: unknown) => fromFailure(error, { target, phase: "answer", signal });
    return {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      text: () =>
        response.text().catch((error: unknown) => {
          throw failed(error);
        }),
      body: chunksOf(response, failed),
    };
  };
}

async function* chunksOf(response: Response, failed: (error: unknown) => Error): AsyncGenerator<Uint8Array> {
  if (!response.body) return;
  const reader = response.body.getReader();
  let ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error: unknown) => {
        ended = true;
        throw failed(error);
      });
      ended = done;
      if (done) return;
      yield value;
    }
  } finally {
    if (!ended) await reader.cancel();
  }
}

function streamOf(source: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = source[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await iterator.return?.();
      },
    },
    { highWaterMark: 1 },
  );
}
