/** How a request reaches the daemon. `fetchTransport` works wherever fetch does; `@forkd/sdk/node` has another. */
import { cancelled, fromFailure } from "./errors.ts";

export type TransportRequest = {
  readonly method: string;
  /** with the query */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array> | undefined;
  readonly signal?: AbortSignal | undefined;
};

/** Either `text()` or `body` is used, once. */
export type TransportResponse = {
  readonly status: number;
  /** by lower-case name; a transport that has none cannot follow pages of lists */
  readonly headers?: Readonly<Record<string, string | string[] | undefined>>;
  text(): Promise<string>;
  /** a reader that stops early ends the request */
  readonly body: AsyncIterable<Uint8Array>;
};

/** Rejects with `daemon_unreachable` or `cancelled`; every HTTP status is an answer. */
export type Transport = (request: TransportRequest) => Promise<TransportResponse>;

export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

/** `url` is the daemon's, such as "http://127.0.0.1:8889". */
export function fetchTransport(options: {
  url: string;
  token?: string | undefined;
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
