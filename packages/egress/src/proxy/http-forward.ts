/** Sends one request of a guest to its host and the response back, as a stream in both directions. */
import http from "node:http";
import type net from "node:net";
import { Transform, type Duplex } from "node:stream";
import { errorMessage } from "@forkd/contract";
import type { Direction, ResponseFilter } from "./intercept.ts";
import { headerBytes, headerPairs, isChunked, responseHeaders } from "./http-headers.ts";
import { pump, relay } from "./pump.ts";

export type Charge = (direction: Direction, bytes: number) => Promise<void> | undefined;

export type Forwarded = {
  readonly method: string;
  readonly path: string;
  /** name, value, name, value …; complete, with Host */
  readonly headers: readonly string[];
  /** reuses connections; or one connection for this request */
  readonly via: { readonly agent: http.Agent; readonly key: string } | { readonly socket: Duplex };
  readonly charge: Charge;
  readonly filter?: ResponseFilter | undefined;
  /** the guest waits for "100 Continue" */
  readonly expectsContinue?: boolean;
  /** the status, or why there is none */
  readonly onDone: (outcome: { status: number } | { problem: string }) => void;
};

/** A body without a length is framed in chunks; without a body there is nothing to frame. */
function requestOptions({ method, path, headers, via }: Forwarded): http.RequestOptions {
  const hasFrame = [...headerPairs(headers)].some(([name]) =>
    /^(?:content-length|transfer-encoding)$/i.test(name),
  );
  const needsLength = !hasFrame && ["POST", "PUT", "PATCH"].includes(method);
  const complete = [...headers, ...(needsLength ? ["Content-Length", "0"] : [])];
  return {
    method,
    path,
    // Node sends a list of names and values as it is.
    headers: complete as unknown as http.OutgoingHttpHeaders,
    setHost: false,
    ...("agent" in via
      ? { agent: via.agent, host: via.key, port: 0 }
      : { createConnection: () => via.socket as net.Socket }),
  };
}

export function forward(
  request: http.IncomingMessage,
  response: http.ServerResponse,
  forwarded: Forwarded,
): void {
  const { charge, filter, onDone } = forwarded;
  response.sendDate = false;
  let isDone = false;
  const done = (outcome: Parameters<typeof onDone>[0]): void => {
    if (!isDone) onDone(outcome);
    isDone = true;
  };
  // No deadline: the connection to the host has one, and an idle connection of the guest is closed.
  const outgoing = http.request(requestOptions(forwarded));
  const fail = (error: unknown): void => {
    done({ problem: errorMessage(error) });
    outgoing.destroy();
    // A connection that was kept may have been closed by the host in this moment. A guest that talks to the host itself
    // would see that close, and tries again; a status would hide it.
    const isStale = outgoing.reusedSocket && !response.headersSent;
    if (response.headersSent || isStale) request.socket.destroy();
    else answerText(response, 502, `Cannot reach the host: ${errorMessage(error)}`);
  };
  outgoing.on("error", fail);
  response.once("close", () => outgoing.destroy());
  outgoing.on("continue", () => {
    if (forwarded.expectsContinue && !response.headersSent) response.writeContinue();
  });
  outgoing.on("response", (incoming) => {
    incoming.on("error", fail);
    incoming.once("close", () => {
      if (!incoming.complete) fail(new Error("the host closed the connection"));
    });
    const status = incoming.statusCode ?? 502;
    done({ status });
    try {
      // The body waits for what the headers took.
      void charge("in", headerBytes(incoming.rawHeaders));
      const raw = filter ? filter.headers(incoming.rawHeaders) : incoming.rawHeaders;
      const headers = responseHeaders(raw, request.httpVersion === "1.1" && request.method !== "HEAD");
      response.writeHead(status, incoming.statusMessage ?? "", headers);
      response.flushHeaders();
    } catch (error) {
      fail(error);
      return;
    }
    const body = filter ? incoming.pipe(filtering(filter)) : incoming;
    pump(body, response, (bytes) => charge("in", bytes), { end: false });
    body.once("end", () => {
      if (response.chunkedEncoding) addTrailers(response, incoming.rawTrailers);
      response.end();
    });
  });
  pump(request, outgoing, (bytes) => charge("out", bytes), { end: false });
  request.once("end", () => {
    if (isChunked(request.rawHeaders)) addTrailers(outgoing, request.rawTrailers);
    outgoing.end();
  });
}

function addTrailers(message: http.OutgoingMessage, raw: readonly string[]): void {
  const pairs = [...headerPairs(raw)];
  if (pairs.length === 0) return;
  try {
    message.addTrailers(pairs);
  } catch {
    // Trailers are optional; the body is complete without them.
  }
}

function filtering(filter: ResponseFilter): Transform {
  return new Transform({
    transform: (chunk: Buffer, _encoding, callback) => callback(null, filter.push(chunk)),
    flush: (callback) => callback(null, filter.end()),
  });
}

/** A request to change the protocol. The host agrees, and the connections are joined; or its answer is sent on. */
export function forwardUpgrade(
  request: http.IncomingMessage,
  guest: Duplex,
  head: Buffer,
  forwarded: Forwarded,
): void {
  const { charge, onDone } = forwarded;
  // No deadline: as for forward().
  const outgoing = http.request(requestOptions(forwarded));
  const fail = (error: unknown): void => {
    onDone({ problem: errorMessage(error) });
    outgoing.destroy();
    guest.destroy();
  };
  guest.on("error", () => outgoing.destroy());
  guest.once("close", () => outgoing.destroy());
  outgoing.on("error", fail);
  outgoing.on("upgrade", (incoming, upstream, upstreamHead) => {
    onDone({ status: 101 });
    guest.write(headText(incoming));
    if (upstreamHead.length > 0) upstream.unshift(upstreamHead);
    if (head.length > 0) guest.unshift(head);
    relay(guest, upstream, charge);
  });
  outgoing.on("response", (incoming) => {
    onDone({ status: incoming.statusCode ?? 502 });
    incoming.on("error", fail);
    try {
      const response = new http.ServerResponse(request);
      response.sendDate = false;
      response.shouldKeepAlive = false;
      response.assignSocket(guest as net.Socket);
      const headers = responseHeaders(incoming.rawHeaders, false);
      response.writeHead(incoming.statusCode ?? 502, incoming.statusMessage ?? "", headers);
      pump(incoming, response, (bytes) => charge("in", bytes));
      response.once("finish", () => guest.end());
    } catch (error) {
      fail(error);
    }
  });
  outgoing.end();
}

function headText(incoming: http.IncomingMessage): string {
  const lines = [...headerPairs(incoming.rawHeaders)].map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${incoming.statusCode} ${incoming.statusMessage}\r\n${lines.join("")}\r\n`;
}

/** An answer of the proxy itself. The connection closes: what follows on it is not read. */
export function answerText(response: http.ServerResponse, status: number, text: string): void {
  if (response.headersSent || response.destroyed) return;
  const body = Buffer.from(`forkd: ${text}\n`);
  response.writeHead(status, {
    "Content-Type": "text/plain; charset=utf-8",
    "Content-Length": body.length,
    Connection: "close",
  });
  response.end(body);
}
