/** A route of the table and its input → a request; the answer → a value, lines or bytes. */
import {
  advice,
  AppError,
  fromErrorBody,
  tunnelPath,
  tunnelProtocol,
  wireRoutes,
} from "@forkd/contract/wire";
import type { ForkdEvent, RequestOf, ResponseOf, Route, RouteName, StreamedOf } from "@forkd/contract";
import { fromWire } from "./convert/answer.ts";
import { requestOf, type OptionsFor } from "./convert/request.ts";
import type { AnswerOf } from "./convert/types.ts";
import { streamWithin, within } from "./deadline.ts";
import { fromAnswer, parseJson } from "./errors.ts";
import { parseEvents } from "./event-frames.ts";
import type { RawStream, Transport, TransportRequest, TransportResponse } from "./transport.ts";

/** Names of the routes whose row in the table has these columns. */
type NamesWith<Columns> = {
  [N in RouteName]: (typeof wireRoutes)[N] extends Columns ? N : never;
}[RouteName];

/** Name of a route that answers with one JSON value. */
export type JsonRoute = NamesWith<{ kind: "json" }>;
type BytesRoute = NamesWith<{ kind: "bytes" }>;
type UploadRoute = NamesWith<{ kind: "upload" }>;
/** `streamed` routes answer with lines when the input says `stream: true`. */
type LinesRoute = NamesWith<{ kind: "events" }> | NamesWith<{ streamed: true }>;
type LineOf<N extends LinesRoute> = N extends NamesWith<{ streamed: true }> ? StreamedOf<N> : ResponseOf<N>;
export type ListRoute = NamesWith<{ paged: true }>;

/** Options of every call. */
export type CallOptions = {
  /** Aborts the call, which then rejects with `cancelled`; default: none. */
  signal?: AbortSignal | undefined;
  /** Longest time of the call in ms, after which it rejects with `deadline_exceeded`; default and 0: no limit. */
  timeoutMs?: number | undefined;
};
/** Options of calls that create something. */
export type CreateOptions = CallOptions & {
  /** Makes the call safe to repeat: the daemon gives its first answer again; default: no key. */
  idempotencyKey?: string | undefined;
};
type SendOptions = CreateOptions & { headers?: Readonly<Record<string, string>> };
/** Content of a file: text, bytes, or chunks of bytes. */
export type Content = string | Uint8Array | AsyncIterable<Uint8Array>;
export type Page<T> = { readonly items: T[]; readonly next: string | undefined };

export class Client {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Sends the options as fields of the request, and converts the answer. */
  async invoke<N extends JsonRoute>(
    name: N,
    fixed: Partial<RequestOf<N>>,
    options: CreateOptions & OptionsFor<N>,
    own: readonly string[] = [],
  ): Promise<AnswerOf<N>> {
    return fromWire(await this.call(name, requestOf(name, fixed, options, own), options));
  }

  /** Returns the JSON value of the answer; undefined if the answer has no body. */
  call<N extends JsonRoute>(
    name: N,
    input: RequestOf<N>,
    options: CreateOptions = {},
  ): Promise<ResponseOf<N>> {
    return within(name, options, async (timed) => {
      const response = await this.#send(name, input, timed);
      return parse(name, await response.text());
    });
  }

  /** Reads one page of a list. */
  page<N extends ListRoute>(
    name: N,
    input: RequestOf<N>,
    options: CallOptions = {},
  ): Promise<Page<ResponseOf<N>[number]>> {
    return within(name, options, async (timed) => {
      const response = await this.#send(name, input, timed);
      const items = parse(name, await response.text());
      const next = response.headers?.["x-next-cursor"];
      return { items, next: typeof next === "string" && next !== "" ? next : undefined };
    });
  }

  /** Opens a stream of server-sent events; resolves when the stream is open. */
  events(
    input: RequestOf<"events">,
    { lastEventId, ...options }: CallOptions & { lastEventId?: string | undefined } = {},
  ): Promise<AsyncGenerator<ForkdEvent>> {
    const headers = {
      accept: "text/event-stream",
      ...(lastEventId !== undefined && { "last-event-id": lastEventId }),
    };
    return streamWithin("events", options, async (timed) =>
      parseEvents((await this.#send("events", input, { ...timed, headers })).body),
    );
  }

  /** Resolves when the answer begins; the iteration throws later failures. */
  lines<N extends LinesRoute>(
    name: N,
    input: RequestOf<N>,
    options: CallOptions = {},
  ): Promise<AsyncGenerator<LineOf<N>>> {
    return streamWithin(name, options, async (timed) => {
      const response = await this.#send(name, input, timed);
      return parseLines(response.body) as AsyncGenerator<LineOf<N>>;
    });
  }

  bytes<N extends BytesRoute>(
    name: N,
    input: RequestOf<N>,
    options: CallOptions = {},
  ): Promise<AsyncGenerator<Uint8Array>> {
    return streamWithin(name, options, async (timed) => (await this.#send(name, input, timed)).body);
  }

  upload<N extends UploadRoute>(
    name: N,
    input: RequestOf<N>,
    content: Content,
    options: CallOptions = {},
  ): Promise<ResponseOf<N>> {
    return within(name, options, async (timed) => {
      const response = await this.#send(name, input, timed, content);
      return parse(name, await response.text());
    });
  }

  /** Connects to a port of a sandbox; resolves when the server there has accepted. */
  tunnel(id: string, port: number, options: CallOptions = {}): Promise<RawStream> {
    const { tunnel } = this.#transport;
    if (!tunnel) {
      throw new AppError("unsupported", "Cannot connect to a port: this transport carries only requests", {
        remedy: advice("Use `connect()` of the entry for Node."),
      });
    }
    return within("connect", options, async ({ signal }) => {
      const headers = { connection: "Upgrade", upgrade: tunnelProtocol };
      const answer = await tunnel({ method: "GET", path: tunnelPath(id, port), headers, signal });
      if (!("status" in answer)) return answer;
      throw fromAnswer(answer.status, await answer.text());
    });
  }

  async #send(
    name: RouteName,
    input: object,
    options: SendOptions,
    content?: Content,
  ): Promise<TransportResponse> {
    const request = requestFor(wireRoutes[name], input, content);
    const response = await this.#transport({
      ...request,
      headers: {
        ...request.headers,
        ...options.headers,
        ...(options.idempotencyKey !== undefined && { "idempotency-key": options.idempotencyKey }),
      },
      signal: options.signal,
    });
    if (response.status >= 400) throw fromAnswer(response.status, await response.text());
    return response;
  }
}

/** Puts path parameters into the path and the rest into the body (POST) or the query. Pure. */
export function requestFor(
  route: Pick<Route, "method" | "path">,
  input: object,
  content?: Content,
): TransportRequest {
  const rest = new Map(Object.entries(input).filter(([, value]) => value !== undefined));
  const path = route.path.replaceAll(/\{(\w+)\}/g, (_, key: string) => {
    const value = String(rest.get(key));
    rest.delete(key);
    return encodeURIComponent(value);
  });
  const method = route.method.toUpperCase();
  if (route.method === "post") {
    const body = JSON.stringify(Object.fromEntries(rest));
    return { method, path, headers: { "content-type": "application/json" }, body };
  }
  const query = new URLSearchParams(
    [...rest].flatMap(([key, value]) => [value].flat().map((each): [string, string] => [key, String(each)])),
  ).toString();
  const request = { method, path: query === "" ? path : `${path}?${query}`, headers: {} };
  if (content === undefined) return request;
  return { ...request, headers: { "content-type": "application/octet-stream" }, body: content };
}

/** Answers of the daemon are not validated: a schema library would double the load time of a client. */
function parse<N extends RouteName>(name: N, text: string): ResponseOf<N> {
  return text === "" ? (undefined as ResponseOf<N>) : (parseJson(text, name) as ResponseOf<N>);
}

/** Lines are not validated: a reader switches on `type` and ignores unknown types. */
async function* parseLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<unknown> {
  for await (const line of splitLines(body)) {
    const event = parseJson(line, "a stream") as {
      type: string;
      error: string;
      code: string;
      details?: Record<string, unknown>;
    };
    if (event.type === "error") throw fromErrorBody({ ...event, details: event.details ?? {} });
    yield event;
  }
}

export async function* splitLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let pending: string[] = [];
  for await (const chunk of body) {
    const [head = "", ...more] = decoder.decode(chunk, { stream: true }).split("\n");
    pending.push(head);
    for (const next of more) {
      const line = pending.join("");
      pending = [next];
      if (line !== "") yield line;
    }
  }
  const rest = pending.join("");
  if (rest !== "")
    throw new AppError("daemon_unreachable", "The daemon's answer ended in the middle of a line");
}
