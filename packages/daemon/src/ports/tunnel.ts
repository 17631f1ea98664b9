/** A raw connection to a port of a guest, over a connection to the daemon that was an HTTP request. */
import type { ServerResponse } from "node:http";
import { tunnelProtocol, type AppError } from "@forkd/contract";
import type { EnteredPort } from "@forkd/runtime";
import type { Connection } from "../http/plan.ts";
import { splice } from "./splice.ts";

type Tunnel = {
  readonly connection: Connection;
  readonly upgrade: NonNullable<Connection["upgrade"]>;
  readonly entered: EnteredPort;
  readonly signal: AbortSignal;
};

/** Resolves when both sides are closed. Throws while nothing was sent. */
export async function connectTunnel({
  connection,
  upgrade,
  entered,
  signal,
}: Tunnel): Promise<AppError | undefined> {
  const { outgoing } = connection;
  const { socket, head } = upgrade;
  const guest = await entered.connect().catch(async (error: unknown) => {
    throw await entered.explain(error);
  });
  if (socket.destroyed || signal.aborted) {
    guest.destroy();
    signal.throwIfAborted();
    return undefined;
  }
  const requestId = String(outgoing.getHeader("x-request-id"));
  outgoing.statusCode = 101;
  outgoing.detachSocket(socket as Parameters<ServerResponse["detachSocket"]>[0]);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${tunnelProtocol}\r\nX-Request-Id: ${requestId}\r\n\r\n`,
  );
  if (head.length > 0) socket.unshift(head);
  using traffic = entered.byTraffic();
  await splice(socket, guest, { onBytes: () => traffic.touch(), signal });
  return undefined;
}
