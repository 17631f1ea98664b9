/** HTTP without an SDK: what a client would do that knows nothing of forkd, over one connection that is kept. */
import http from "node:http";
import { pipeline } from "node:stream/promises";
import { Readable } from "node:stream";
import { deadline, limits } from "../deadline.ts";

type RawRequest = {
  method?: "GET" | "POST" | "PUT";
  path: string;
  /** sent as JSON */
  json?: unknown;
  /** sent as it is */
  content?: Uint8Array;
};

export class RawClient implements Disposable {
  readonly #socket: string;
  readonly #agent: http.Agent;

  constructor(socket: string, connections = 1) {
    this.#socket = socket;
    this.#agent = new http.Agent({ keepAlive: true, maxSockets: connections });
  }

  /** Resolves when the answer begins; throws unless it is a success. */
  async send({ method = "GET", path, json, content }: RawRequest): Promise<http.IncomingMessage> {
    const body = json === undefined ? content : Buffer.from(JSON.stringify(json));
    const outgoing = http.request({
      socketPath: this.#socket,
      agent: this.#agent,
      method,
      path,
      headers: {
        ...(json !== undefined && { "content-type": "application/json" }),
        ...(content !== undefined && { "content-type": "application/octet-stream" }),
        ...(body !== undefined && { "content-length": body.byteLength }),
      },
    });
    const answered = new Promise<http.IncomingMessage>((resolve, reject) => {
      outgoing.once("response", resolve);
      outgoing.once("error", reject);
    });
    outgoing.end(body);
    const answer = await deadline(`the answer to ${method} ${path}`, limits.call, answered);
    if ((answer.statusCode ?? 0) >= 300)
      throw new Error(`${method} ${path} answered ${answer.statusCode}: ${await textOf(answer)}`);
    return answer;
  }

  async json(request: RawRequest): Promise<unknown> {
    return JSON.parse(await textOf(await this.send(request))) as unknown;
  }

  /** Reads a streamed answer to its end, line by line. */
  async lines(request: RawRequest, onLine: (line: string) => void): Promise<void> {
    let rest = "";
    for await (const chunk of (await this.send(request)).setEncoding("utf8")) {
      const parts = (rest + String(chunk)).split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) onLine(line);
    }
  }

  /** Reads an answer to its end and drops it; returns how many bytes it had. */
  async drain(request: RawRequest): Promise<number> {
    let bytes = 0;
    const answer = await this.send(request);
    await deadline(
      `the end of ${request.path}`,
      limits.call,
      pipeline(answer, async (chunks: AsyncIterable<Uint8Array>) => {
        for await (const chunk of chunks) bytes += chunk.byteLength;
      }),
    );
    return bytes;
  }

  [Symbol.dispose](): void {
    this.#agent.destroy();
  }
}

async function textOf(answer: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
