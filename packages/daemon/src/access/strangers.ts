/**
 * Connections on which no caller has been identified yet. They may use a share of all connections: a new one
 * over that share closes the oldest that has no request in progress. So a program without a token cannot
 * keep callers out by opening silent connections, from any address.
 */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";

const minShare = 16;
const identified = new WeakSet<Socket>();

/** Called when a request on the connection has a known caller. */
export function markIdentified(socket: Socket): void {
  identified.add(socket);
}

/** Returns a function that exempts a connection which changed its protocol and has no further requests. */
export function limitStrangers(server: Server, maxConnections: number): (socket: Socket) => void {
  const share = Math.max(minShare, Math.floor(maxConnections / 2));
  // Oldest first. By address, because a request over TLS has another socket object than its connection.
  const idle = new Map<string, Socket>();
  const busy = new Map<string, Socket>();
  server.on("connection", (socket: Socket) => {
    const name = nameOf(socket);
    idle.set(name, socket);
    socket.once("close", () => {
      idle.delete(name);
      busy.delete(name);
    });
    for (const [oldest, other] of idle) {
      if (idle.size <= share) break;
      idle.delete(oldest);
      other.destroy();
    }
  });
  server.prependListener("request", ({ socket }: IncomingMessage, outgoing: ServerResponse) => {
    const name = nameOf(socket);
    const connection = idle.get(name);
    if (connection === undefined) return;
    idle.delete(name);
    busy.set(name, connection);
    outgoing.once("close", () => {
      if (busy.delete(name) && !identified.has(socket)) idle.set(name, connection);
    });
  });
  return (socket) => void idle.delete(nameOf(socket));
}

function nameOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
