/** Requests to a daemon without the SDK: routes as they are on the wire. */
import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { createInterface } from "node:readline";

type Wire = { method?: string; path: string; body?: unknown };

export type RawAnswer = Disposable & {
  readonly status: number;
  /** the next line of JSON; undefined at the end */
  next(): Promise<Record<string, unknown> | undefined>;
  /** all lines up to the end */
  rest(): Promise<Record<string, unknown>[]>;
  /** Stops or continues reading from the connection. */
  readonly stream: IncomingMessage;
};

/** An answer of JSON lines. Disposing it drops the connection. */
export async function rawRequest(socket: string, { method, path, body }: Wire): Promise<RawAnswer> {
  const request = httpRequest({
    socketPath: socket,
    path,
    method: method ?? (body === undefined ? "GET" : "POST"),
    headers: { host: "localhost", "content-type": "application/json" },
    agent: false,
  });
  request.on("error", () => undefined);
  request.end(body === undefined ? undefined : JSON.stringify(body));
  const [response] = (await once(request, "response")) as [IncomingMessage];
  response.on("error", () => undefined);
  const lines = createInterface({ input: response, crlfDelay: Infinity })[Symbol.asyncIterator]();
  const next = async (): Promise<Record<string, unknown> | undefined> => {
    const { done, value } = await lines.next();
    return done ? undefined : (JSON.parse(value) as Record<string, unknown>);
  };
  return {
    status: response.statusCode ?? 0,
    next,
    rest: async () => {
      const all: Record<string, unknown>[] = [];
      for (let line = await next(); line; line = await next()) all.push(line);
      return all;
    },
    stream: response,
    [Symbol.dispose]: () => request.destroy(),
  };
}
