/**
 * Requests that Node's server would answer with an empty body: bytes that are not HTTP, headers that are too
 * long or too slow, an unknown Expect, and CONNECT. They get an error with a body like any other.
 */
import { STATUS_CODES, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { advice, AppError, errorCodes, toErrorBody } from "@forkd/contract";
import { sendError } from "./answer/error.ts";
import { requestIdOf } from "./request-id.ts";

const lingerMs = 1000;

type Exchange = { incoming: IncomingMessage; outgoing: ServerResponse };
/** Requests of one connection that wait for an answer, the last request, and an error to send after these. */
type Connection = { open: number; last: Exchange | undefined; error: AppError | undefined };

export function answerBadHttp(server: Server): void {
  const connections = new WeakMap<Duplex, Connection>();
  const connectionOf = (socket: Duplex): Connection => {
    const known = connections.get(socket) ?? { open: 0, last: undefined, error: undefined };
    connections.set(socket, known);
    return known;
  };
  server.prependListener("request", (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { socket } = incoming;
    const connection = connectionOf(socket);
    connection.open++;
    connection.last = { incoming, outgoing };
    outgoing.once("close", () => {
      connection.open--;
      if (connection.open === 0 && connection.error) endWith(socket, connection.error);
    });
  });
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const connection = connectionOf(socket);
    // The parser reports every further piece after the first fault.
    if (connection.error) return;
    connection.error = faultOf(error);
    const { last } = connection;
    if (error.code === "ECONNRESET" || !socket.writable) socket.destroy();
    // Answers are sent in the order of the requests: those before the fault first.
    else if (connection.open === 0) endWith(socket, connection.error);
    else if (last && !last.incoming.complete) refuseBody(last, connection.error);
  });
  server.on("connect", (_request, socket) =>
    endWith(socket, new AppError("method_not_allowed", "The daemon opens no tunnels: CONNECT is not taken")),
  );
  server.on("checkExpectation", (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const requestId = requestIdOf(incoming.headers["x-request-id"]);
    outgoing.setHeader("x-request-id", requestId);
    const message = `Invalid request: cannot do what the header Expect asks: ${incoming.headers.expect}`;
    sendError(outgoing, new AppError("invalid_request", message), requestId);
  });
}

/** The fault is in the body of a request with good headers: that request gets the error. */
function refuseBody({ incoming, outgoing }: Exchange, error: AppError): void {
  outgoing.shouldKeepAlive = false;
  // Node drops the request with its answer; a reader of the body would wait forever.
  outgoing.once("close", () => incoming.destroy(error));
  const made = outgoing.getHeader("x-request-id");
  const requestId = typeof made === "string" ? made : requestIdOf(incoming.headers["x-request-id"]);
  sendError(outgoing, error, requestId);
}

function faultOf({ code, message }: NodeJS.ErrnoException): AppError {
  if (code === "HPE_HEADER_OVERFLOW") {
    return new AppError(
      "invalid_request",
      "Invalid request: its first line and headers are longer than 16 KiB",
      { remedy: advice("Send long values in the body.") },
    );
  }
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") {
    return new AppError("invalid_request", "Invalid request: its headers did not come in time");
  }
  return new AppError("invalid_request", `Invalid request: it is not HTTP/1.1: ${message}`);
}

function endWith(socket: Duplex, error: AppError): void {
  // A client that has gone is not a failure of the daemon.
  socket.on("error", () => undefined);
  if (!socket.writable) return void socket.destroy();
  const requestId = requestIdOf(undefined);
  const body = JSON.stringify(toErrorBody(error, requestId));
  const { status } = errorCodes[error.code];
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nconnection: close\r\ncontent-type: application/json\r\n` +
      `x-request-id: ${requestId}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  // Read and drop what the client still sends: if the socket closed at once, the client would fail before it
  // reads the answer.
  socket.resume();
  const cut = setTimeout(() => socket.destroy(), lingerMs);
  socket.once("close", () => clearTimeout(cut));
}
