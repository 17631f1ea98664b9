/** Passes TCP connections on and counts the bytes, so that what is moved is measured outside of forkd. */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export type CountingProxy = AsyncDisposable & {
  /** `127.0.0.1:PORT` */
  readonly address: string;
  /** bytes that clients have sent */
  readonly sent: number;
  /** bytes that clients have received */
  readonly received: number;
};

export async function countingProxy(target: string): Promise<CountingProxy> {
  const [host = "", port = ""] = target.split(":");
  const sockets = new Set<Socket>();
  let sent = 0;
  let received = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(port), host);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on("data", (bytes: Buffer) => (sent += bytes.length));
    upstream.on("data", (bytes: Buffer) => (received += bytes.length));
    client.pipe(upstream);
    upstream.pipe(client);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    get sent() {
      return sent;
    },
    get received() {
      return received;
    },
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
