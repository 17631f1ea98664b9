/** A plain HTTP server on a unix socket and on TCP, and all transports to it. */
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nodeTransport } from "../src/node.ts";
import { fetchTransport, type Transport } from "../src/transport.ts";

export type TestServer = AsyncDisposable & { transports: Record<"fetch" | "tcp" | "unix", Transport> };

export async function startServer(listener: http.RequestListener): Promise<TestServer> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-sdk-"));
  const socket = join(dir, "s");
  const servers = [http.createServer(listener), http.createServer(listener)] as const;
  await new Promise<void>((resolve) => servers[0].listen(socket, resolve));
  await new Promise<void>((resolve) => servers[1].listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(servers[1].address() as AddressInfo).port}`;
  return {
    transports: {
      fetch: fetchTransport({ url: `${url}/`, token: "secret" }),
      tcp: nodeTransport({ url, token: "secret" }),
      unix: nodeTransport({ socket }),
    },
    [Symbol.asyncDispose]: async () => {
      for (const server of servers) {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
      }
      await rm(dir, { recursive: true });
    },
  };
}

export async function readBody(incoming: http.IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

export async function collect(body: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}
