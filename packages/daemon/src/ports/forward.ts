/** Passes one request to a server in a guest and its answer back, as fast as both sides read. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { AppError } from "@forkd/contract";
import type { EnteredPort } from "@forkd/runtime";
import type { Connection } from "../http/plan.ts";
import { askGuest, failed, type GuestAnswer } from "./ask-guest.ts";
import { toClient, toGuest, type RequestFacts } from "./headers.ts";
import type { PortAgent } from "./port-agent.ts";
import { splice } from "./splice.ts";

/** How long a client that asked for "100 Continue" waits for the guest to say it */
const continueMs = 1000;

export type Forwarding = RequestFacts & {
  readonly connection: Connection;
  /** target for the guest */
  readonly path: string;
  readonly entered: EnteredPort;
  readonly agent: PortAgent;
  /** The client waits for "100 Continue". */
  readonly expectsContinue: boolean;
  readonly signal: AbortSignal;
};

/** Resolves with a failure that came after the status was sent. */
export async function forward(forwarding: Forwarding): Promise<AppError | undefined> {
  const { connection, entered, agent, signal } = forwarding;
  const { incoming, outgoing } = connection;
  requireKnownEncoding(incoming);
  const hasBody = hasBodyOf(incoming);
  let waiting: NodeJS.Timeout | undefined;
  const goOn = () => {
    clearTimeout(waiting);
    if (forwarding.expectsContinue && !outgoing.headersSent && !outgoing.destroyed) outgoing.writeContinue();
  };
  if (forwarding.expectsContinue) waiting = setTimeout(goOn, continueMs);
  try {
    const answer = await askGuest(agent, {
      method: incoming.method ?? "GET",
      path: forwarding.path,
      headers: toGuest(incoming.rawHeaders, forwarding),
      mayRepeat: !hasBody && /^(GET|HEAD|OPTIONS)$/.test(incoming.method ?? ""),
      onContinue: goOn,
      signal,
      send: (request) => {
        if (!hasBody) return void request.end();
        incoming.pipe(request, { end: false });
        incoming.once("end", () => {
          if (incoming.rawTrailers.length > 0) request.addTrailers(pairsOf(incoming.rawTrailers));
          request.end();
        });
      },
    });
    clearTimeout(waiting);
    if (answer.upgraded) return await joinUpgraded(forwarding, answer, answer.upgraded);
    return await sendAnswer(forwarding, answer);
  } catch (error) {
    throw await entered.explain(error);
  } finally {
    clearTimeout(waiting);
  }
}

async function sendAnswer(
  { access, target, connection, entered }: Forwarding,
  { request, response }: GuestAnswer,
): Promise<AppError | undefined> {
  const { outgoing } = connection;
  try {
    begin(outgoing, response, toClient(response.rawHeaders, { access, target }));
  } catch (error) {
    request.destroy();
    for (const name of outgoing.getHeaderNames()) outgoing.removeHeader(name);
    throw new AppError("port_failed", "The server in the sandbox failed: its answer has invalid headers", {
      cause: error,
    });
  }
  const failure = await new Promise<Error | undefined>((resolve) => {
    let problem: Error | undefined;
    response.once("error", (error) => {
      problem = error;
      outgoing.destroy();
    });
    response.once("end", () => {
      if (response.rawTrailers.length > 0) outgoing.addTrailers(pairsOf(response.rawTrailers));
      outgoing.end();
      // It does not read the rest of the body.
      if (!request.writableEnded) request.destroy();
    });
    const done = () => {
      if (!response.complete) request.destroy();
      resolve(problem);
    };
    outgoing.once("close", done).once("finish", done);
    if (outgoing.destroyed) done();
    response.pipe(outgoing, { end: false });
  });
  if (failure === undefined) return undefined;
  const explained = await entered.explain(failed(failure));
  return explained instanceof AppError ? explained : failed(explained);
}

/** Sends status and headers at once: an event stream may be silent for long after them. */
function begin(outgoing: ServerResponse, response: IncomingMessage, headers: readonly string[]): void {
  const given = new Set(headers.filter((_, at) => at % 2 === 0).map((name) => name.toLowerCase()));
  for (const name of outgoing.getHeaderNames()) if (given.has(name)) outgoing.removeHeader(name);
  for (let at = 0; at + 1 < headers.length; at += 2)
    outgoing.appendHeader(headers[at] ?? "", headers[at + 1] ?? "");
  outgoing.writeHead(response.statusCode ?? 502, response.statusMessage ?? "");
  outgoing.flushHeaders();
}

async function joinUpgraded(
  { access, target, connection, entered, signal }: Forwarding,
  { response }: GuestAnswer,
  { stream, head }: NonNullable<GuestAnswer["upgraded"]>,
): Promise<AppError | undefined> {
  const { outgoing, upgrade } = connection;
  const protocol = response.headers.upgrade;
  if (!upgrade || protocol === undefined || response.statusCode !== 101) {
    stream.destroy();
    throw new AppError(
      "port_failed",
      "The server in the sandbox failed: it changed the protocol without being asked",
    );
  }
  const headers = toClient(response.rawHeaders, { access, target });
  const lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", `Upgrade: ${protocol}`];
  for (let at = 0; at + 1 < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`);
  const { socket } = upgrade;
  outgoing.statusCode = 101;
  outgoing.detachSocket(socket as Parameters<ServerResponse["detachSocket"]>[0]);
  socket.write(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
  if (head.length > 0) socket.write(head);
  if (upgrade.head.length > 0) socket.unshift(upgrade.head);
  using traffic = entered.byTraffic();
  await splice(socket, stream, { onBytes: () => traffic.touch(), signal });
  return undefined;
}

function hasBodyOf({ headers }: IncomingMessage): boolean {
  const { "content-length": length, "transfer-encoding": encoding } = headers;
  return encoding !== undefined || (length !== undefined && length !== "0");
}

/** The daemon takes the chunks apart; any other encoding would reach the guest without its name. */
function requireKnownEncoding({ headers }: IncomingMessage): void {
  const encoding = headers["transfer-encoding"];
  if (encoding === undefined || encoding.trim().toLowerCase() === "chunked") return;
  throw new AppError(
    "invalid_request",
    `Invalid request: the Transfer-Encoding must be chunked, not "${encoding.slice(0, 100)}"`,
  );
}

function pairsOf(raw: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) pairs.push([raw[at] ?? "", raw[at + 1] ?? ""]);
  return pairs;
}
