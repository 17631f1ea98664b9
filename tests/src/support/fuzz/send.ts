/** Sends requests over the daemon's socket: valid HTTP on kept connections, or raw bytes. */
import { Agent, request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import type { Answer } from "./judge.ts";
import type { FuzzRequest } from "./requests.ts";

/** The client disconnects after this much of a stream. */
const enoughBytes = 64 * 1024;

export type SendOptions = {
  readonly socketPath: string;
  readonly agent: Agent;
  /** the client disconnects after this time, and the result is undefined */
  readonly timeoutMs: number;
};

export function send(request: FuzzRequest, options: SendOptions): Promise<Answer | undefined> {
  const { socketPath, agent, timeoutMs } = options;
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
    }, timeoutMs);
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
  // An incomplete answer is checked as far as it was received.
  incoming.once("close", () => done(incoming.complete));
}

export type RawReply = { readonly status: number; readonly headers: string; readonly body: string };

/** Sends bytes; returns the replies until the daemon closes the connection or is silent for `timeoutMs`. */
export function sendRaw(
  socketPath: string,
  bytes: Buffer,
  options: { timeoutMs: number; replies?: number },
): Promise<RawReply[]> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    let received = "";
    const finish = () => {
      socket.destroy();
      resolve(parseReplies(received));
    };
    socket.setTimeout(options.timeoutMs, finish);
    socket.on("data", (chunk: Buffer) => {
      received += chunk.toString("latin1");
      if (options.replies !== undefined && parseReplies(received).length >= options.replies) finish();
    });
    // The daemon may close the connection before it has read everything.
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
