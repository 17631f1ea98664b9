/**
 * Requests with the header Upgrade. Node stops to parse a connection at such a request if anything listens for
 * it. So a request whose protocol the daemon does not take is given to the server again without the header, with its body.
 */
import https from "node:https";
import type { IncomingMessage, Server } from "node:http";
import type { Duplex } from "node:stream";

/** Returns false for a request that is served without the change. */
export type UpgradeListener = (incoming: IncomingMessage, socket: Duplex, head: Buffer) => boolean;

export function takeUpgrades(server: Server, listener: UpgradeListener): void {
  server.on("upgrade", (incoming: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (!listener(incoming, socket, head)) serveAgain(server, { incoming, socket, head });
  });
}

type Upgrade = { incoming: IncomingMessage; socket: Duplex; head: Buffer };

function serveAgain(server: Server, { incoming, socket, head }: Upgrade): void {
  const { method, url, httpVersion, rawHeaders } = incoming;
  const lines = [`${method} ${url} HTTP/${httpVersion}`];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? "";
    if (!/^(upgrade|http2-settings)$/i.test(name)) lines.push(`${name}: ${rawHeaders[at + 1]}`);
  }
  socket.unshift(Buffer.concat([Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1"), head]));
  server.emit(server instanceof https.Server ? "secureConnection" : "connection", socket);
}
