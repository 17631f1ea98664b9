import { once as nodeOnce, type EventEmitter } from "node:events";
import type net from "node:net";
import { createServer } from "node:net";
import type { TestContext } from "node:test";
import { withDeadline } from "@forkd/base";

/** Long enough for very slow hosts. A passing test does not wait that long. */
const patienceMs = 60_000;

/** once() with a deadline. */
export async function once(emitter: EventEmitter, event: string): Promise<unknown[]> {
  return withDeadline(nodeOnce(emitter, event), patienceMs, () => new Error(`no "${event}" event`));
}

export function patient<T>(work: Promise<T>, what: string): Promise<T> {
  return withDeadline(work, patienceMs, () => new Error(`not in time: ${what}`));
}

/** A listening server that is closed, with its connections, after the test. */
export async function listening(
  t: TestContext,
  onConnection: (socket: net.Socket) => void,
  address = "127.0.0.1",
): Promise<number> {
  const sockets = new Set<net.Socket>();
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    socket.on("error", () => undefined);
    onConnection(socket);
  });
  server.listen(0, address);
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as net.AddressInfo).port;
}

/** Everything that a socket sends until it ends or fails. */
export async function received(socket: net.Socket): Promise<string> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  const closed = new Promise<void>((resolve) => {
    socket.on("close", () => resolve());
    socket.on("end", () => resolve());
    socket.on("error", () => resolve());
  });
  await patient(closed, "the end of a connection");
  return Buffer.concat(chunks).toString("latin1");
}
