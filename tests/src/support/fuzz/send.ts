/** Sends requests over the daemon's socket: well-formed HTTP with kept connections, and bytes as they are. */
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import type { Answer } from "./judge.ts";
import type { FuzzRequest } from "./requests.ts";

/** A reader that has seen this much of a stream has seen enough. */
const enoughBytes = 64 * 1024;

export type SendOptions = {
  readonly socketPath: string;
  readonly agent: Agent;
  /** a client that loses its patience goes away in the middle; undefined is the outcome */
  readonly patienceMs: number;
};

export function send(request: FuzzRequest, options: SendOptions): Promise<Answer | undefined> {
  const { socketPath, agent, patienceMs } = options;
  return new Promise((resolve, reject) => {
    const body = request.body === undefined ? undefined : Buffer.from(request.body);
    const outgoing = httpRequest(
      {
        socketPath,
        agent,
        method: request.method,
        path: request.target,
        headers: { ...request.headers, ...(body && { "content-length": body.length }) },
      },
      (incoming) => collect(incoming, () => clearTimeout(timer), resolve),
    );
    const timer = setTimeout(() => {
      outgoing.destroy();
      resolve(undefined);
    }, patienceMs);
    outgoing.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    outgoing.end(body);
  });
}

function collect(incoming: IncomingMessage, answered: () => void, resolve: (answer: Answer) => void): void {
  const chunks: Buffer[] = [];
  let size = 0;
  const done = (whole: boolean) => {
    answered();
    const requestId = incoming.headers["x-request-id"];
    resolve({
      status: incoming.statusCode ?? 0,
      type: (incoming.headers["content-type"] ?? "").split(";", 1)[0] ?? "",
      requestId: typeof requestId === "string" ? requestId : undefined,
      body: Buffer.concat(chunks),
      whole,
    });
  };
  incoming.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    size += chunk.length;
    const isStream = incoming.headers["content-length"] === undefined;
    if (!isStream || size < enoughBytes) return;
    incoming.destroy();
    done(false);
  });
  incoming.once("end", () => done(true));
  // A cut answer is judged by what there is of it.
  incoming.once("close", () => done(incoming.complete));
}

export type RawReply = { readonly status: number; readonly headers: string; readonly body: string };

/** Writes the bytes and ends; what came back until the daemon closed, or until nothing came for `patienceMs`. */
export function sendRaw(
  socketPath: string,
  bytes: Buffer,
  options: { patienceMs: number; replies?: number },
): Promise<RawReply[]> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    let received = "";
    const finish = () => {
      socket.destroy();
      resolve(parseReplies(received));
    };
    socket.setTimeout(options.patienceMs, finish);
    socket.on("data", (chunk: Buffer) => {
      received += chunk.toString("latin1");
      if (options.replies !== undefined && parseReplies(received).length >= options.replies) finish();
    });
    // The daemon may close before it has read all.
    socket.on("error", () => undefined);
    socket.once("close", finish);
    socket.write(bytes);
  });
}

/** Replies with a length, in order; an incomplete last one is left out. */
function parseReplies(text: string): RawReply[] {
  const replies: RawReply[] = [];
  for (let rest = text; ;) {
    const end = rest.indexOf("\r\n\r\n");
    const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(rest)?.[1] ?? 0);
    if (end === -1 || status === 0) return replies;
    const headers = rest.slice(0, end);
    const length = Number(/^content-length: *(\d+)/im.exec(headers)?.[1] ?? 0);
    const body = rest.slice(end + 4, end + 4 + length);
    if (body.length < length) return replies;
    rest = rest.slice(end + 4 + length);
    if (status >= 200) replies.push({ status, headers, body });
  }
}
