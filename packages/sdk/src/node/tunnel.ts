/** A request that turns its connection into raw bytes. */
import http from "node:http";
import https from "node:https";
import net from "node:net";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import { cancelled, fromFailure } from "../errors.ts";
import type { TransportRequest, TransportResponse } from "../transport.ts";

type TunnelPlace = {
  /** host and port, or the path of a unix socket */
  readonly place: { readonly host: string; readonly port: number } | { readonly socketPath: string };
  readonly secure: boolean;
  readonly ca?: string | undefined;
  /** for messages */
  readonly target: string;
  /** ms for the connection to the daemon */
  readonly connectMs: number;
};

/** Resolves with the connection, or with the answer of a daemon that refuses. */
export function openTunnel(
  { place, secure, ca, target, connectMs }: TunnelPlace,
  { method, path, headers, signal }: TransportRequest,
  answerOf: (outgoing: http.ClientRequest, incoming: http.IncomingMessage) => TransportResponse,
): Promise<TransportResponse | Duplex> {
  if (signal?.aborted) return Promise.reject(cancelled(signal.reason));
  return new Promise((resolve, reject) => {
    // Without allowHalfOpen the end of one direction would end the other one too.
    const plain =
      "host" in place
        ? net.connect({ ...place, allowHalfOpen: true, noDelay: true })
        : net.connect({ path: place.socketPath, allowHalfOpen: true });
    const socket = secure ? secured(plain, place, ca) : plain;
    // Without an agent: one would make its own connection.
    const outgoing = (secure ? https : http).request({
      ...place,
      method,
      path,
      headers,
      createConnection: () => socket,
    });
    const fail = (error: unknown) => {
      done();
      socket.destroy();
      reject(fromFailure(error, { target, phase: "connect", signal }));
    };
    const late = () => fail(new Error(`no connection within ${connectMs / 1000} s`));
    const timer = setTimeout(late, connectMs);
    const abort = () => fail(signal?.reason);
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    };
    signal?.addEventListener("abort", abort, { once: true });
    socket.once(secure ? "secureConnect" : "connect", () => clearTimeout(timer));
    outgoing.once("upgrade", (_, stream: Duplex, head: Buffer) => {
      done();
      if (head.length > 0) stream.unshift(head);
      resolve(stream);
    });
    outgoing.once("response", (incoming) => {
      done();
      resolve(answerOf(outgoing, incoming));
    });
    // Stays attached: a request can fail after its response has begun.
    outgoing.on("error", fail);
    outgoing.end();
  });
}

function secured(socket: net.Socket, place: TunnelPlace["place"], ca: string | undefined): tls.TLSSocket {
  const name = "host" in place ? place.host : "localhost";
  // For an address, the certificate is checked without asking the server for a name.
  const names = net.isIP(name) === 0 ? { servername: name } : { host: name };
  return tls.connect({ socket, minVersion: "TLSv1.2", ...names, ...(ca !== undefined && { ca }) });
}
