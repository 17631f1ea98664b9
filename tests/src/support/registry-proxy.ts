/** A proxy in front of a registry that counts what is fetched, and can stop in the middle. */
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export type RegistryProxy = {
  readonly address: string;
  /** bytes of blobs that were sent to clients */
  blobBytes: number;
  /** bytes that clients sent */
  sentBytes: number;
  /** When this many bytes of blobs were sent, nothing more is sent; undefined: no limit. */
  stopAfter: number | undefined;
  /** resolves when it stopped */
  readonly stopped: Promise<void>;
};

export async function startProxy(t: TestContext, registry: string): Promise<RegistryProxy> {
  const { hostname, port } = new URL(`http://${registry}`);
  let onStopped = (): void => undefined;
  const stopped = new Promise<void>((resolve) => (onStopped = resolve));
  const server = http.createServer((request, response) => {
    const { method, url: path, headers } = request;
    const forwarded = http.request({ hostname, port, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.on("data", (piece: Buffer) => {
        if (path?.includes("/blobs/") && method === "GET") {
          if (proxy.stopAfter !== undefined && proxy.blobBytes >= proxy.stopAfter) {
            answer.pause();
            onStopped();
            return;
          }
          proxy.blobBytes += piece.length;
        }
        if (response.write(piece)) return;
        answer.pause();
        response.once("drain", () => answer.resume());
      });
      answer.on("end", () => response.end());
    });
    forwarded.on("error", () => response.destroy());
    response.on("close", () => forwarded.destroy());
    request.on("data", (piece: Buffer) => (proxy.sentBytes += piece.length));
    request.pipe(forwarded);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const proxy: RegistryProxy = {
    address: `127.0.0.1:${(server.address() as AddressInfo).port}`,
    blobBytes: 0,
    sentBytes: 0,
    stopAfter: undefined,
    stopped,
  };
  return proxy;
}
