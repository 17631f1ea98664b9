/** One request to a server in a guest, until its answer begins. */
import http from "node:http";
import type { Duplex } from "node:stream";
import { AppError, errorMessage } from "@forkd/contract";
import type { PortAgent } from "./port-agent.ts";

const maxHeaderBytes = 64 * 1024;

type GuestRequest = {
  readonly method: string;
  readonly path: string;
  /** names and values in turn */
  readonly headers: readonly string[];
  /** Sends the body and ends the request. Called again if the request is repeated. */
  readonly send: (request: http.ClientRequest) => void;
  /** a second try does no harm, because there is no body and the method changes nothing */
  readonly mayRepeat: boolean;
  readonly onContinue: () => void;
  readonly signal: AbortSignal;
};

export type GuestAnswer = {
  readonly request: http.ClientRequest;
  readonly response: http.IncomingMessage;
  /** The server changed the protocol. */
  readonly upgraded?: { readonly stream: Duplex; readonly head: Buffer };
};

/** Throws what connecting throws, or `port_failed`. */
export async function askGuest(agent: PortAgent, asked: GuestRequest): Promise<GuestAnswer> {
  if (!asked.mayRepeat && !agent.isFresh) agent.dropIdle();
  try {
    return await askOnce(agent, asked);
  } catch (error) {
    if (!(error instanceof StaleConnection)) throw error;
    if (!asked.mayRepeat || asked.signal.aborted) throw failed(error.cause);
    agent.dropIdle();
    return await askOnce(agent, asked).catch((again: unknown) => {
      throw again instanceof StaleConnection ? failed(again.cause) : again;
    });
  }
}

/** The server closed a connection that had served a request before. */
class StaleConnection extends Error {}

function askOnce(agent: PortAgent, { signal, ...asked }: GuestRequest): Promise<GuestAnswer> {
  return new Promise((resolve, reject) => {
    // No deadline: the connection has one, and a server may take its time to answer. The signal ends it.
    const request = http.request({
      host: "guest",
      agent,
      method: asked.method,
      path: asked.path,
      headers: asked.headers,
      maxHeaderSize: maxHeaderBytes,
      insecureHTTPParser: false,
      signal,
    });
    request.once("response", (response) => resolve({ request, response }));
    request.once("upgrade", (response, stream: Duplex, head: Buffer) =>
      resolve({ request, response, upgraded: { stream, head } }),
    );
    request.once("continue", asked.onContinue);
    // Stays: a request may fail after its answer has begun.
    request.on("error", (error: NodeJS.ErrnoException) => {
      if (error instanceof AppError) return reject(error);
      if (signal.aborted)
        return reject(new AppError("cancelled", "The request was cancelled", { cause: error }));
      const isStale = request.reusedSocket && (error.code === "ECONNRESET" || error.code === "EPIPE");
      reject(isStale ? new StaleConnection("stale", { cause: error }) : failed(error));
    });
    asked.send(request);
  });
}

/** The guest closed the connection, or what it sent is not an answer. */
export function failed(error: unknown): AppError {
  if (error instanceof AppError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const why =
    code === "HPE_HEADER_OVERFLOW"
      ? `its headers are longer than ${maxHeaderBytes / 1024} KiB`
      : code.startsWith("HPE_")
        ? `its answer is not HTTP/1.1: ${errorMessage(error)}`
        : "it closed the connection before its answer was complete";
  return new AppError("port_failed", `The server in the sandbox failed: ${why}`, { cause: error });
}
