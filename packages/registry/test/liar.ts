/** A server that answers as the test says. */
import http from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { Registries, type RegistriesOptions } from "../src/registries.ts";
import type { Repository } from "../src/repository.ts";

export type Handler = (request: http.IncomingMessage, response: http.ServerResponse) => void;

/** Returns `127.0.0.1:PORT` and the requests so far, as `METHOD PATH`. */
export async function startLiar(
  t: TestContext,
  handler: Handler,
): Promise<{ address: string; requests: string[]; headers: http.IncomingHttpHeaders[] }> {
  const requests: string[] = [];
  const headers: http.IncomingHttpHeaders[] = [];
  const server = http.createServer((request, response) => {
    requests.push(`${request.method} ${request.url}`);
    headers.push(request.headers);
    response.on("error", () => undefined);
    handler(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, requests, headers };
}

export function openRepository(t: TestContext, address: string, options: RegistriesOptions = {}): Repository {
  const registries = new Registries({
    retries: { attempts: 3, firstMs: 1, maxMs: 10 },
    silenceMs: 5000,
    plainHttp: true,
    ...options,
  });
  t.after(() => registries[Symbol.dispose]());
  return registries.repository({ registry: address, repository: "x" });
}

export async function readAll(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

export function blobOf(bytes: Uint8Array, digest: string) {
  return {
    digest,
    size: bytes.length,
    open: async function* () {
      yield bytes;
    },
  };
}
