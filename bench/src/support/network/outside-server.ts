/**
 * Servers of the outside world, in a network namespace of the benchmark: DNS, HTTP, and bytes without a
 * protocol that the proxy knows. Arguments: the address.
 */
import { createSocket } from "node:dgram";
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTcp, type Socket } from "node:net";
import type { Writable } from "node:stream";
import { domain, rawVerbs, serverPorts } from "./protocol.ts";

const address = process.argv[2] ?? "";
const block = Buffer.alloc(256 * 1024);

function pour(sink: Writable, count: number): void {
  let left = count;
  const more = (): void => {
    while (left > 0) {
      const size = Math.min(left, block.length);
      left -= size;
      if (!sink.write(size === block.length ? block : block.subarray(0, size))) {
        sink.once("drain", more);
        return;
      }
    }
    sink.end();
  };
  more();
}

/** One byte says what to do, eight how many bytes follow. */
function serveRaw(socket: Socket): void {
  let head: Buffer = Buffer.alloc(0);
  let expected = 0;
  socket.on("error", () => socket.destroy());
  socket.setNoDelay(true);
  const count = (chunk: Buffer): void => {
    expected -= chunk.length;
    if (expected <= 0) socket.end("x");
  };
  const begin = (chunk: Buffer): void => {
    head = Buffer.concat([head, chunk]);
    if (head.length < 9) return;
    socket.off("data", begin);
    expected = Number(head.readBigUInt64BE(1));
    if (head[0] === rawVerbs.down) pour(socket, expected);
    else {
      socket.on("data", count);
      count(head.subarray(9));
    }
  };
  socket.on("data", begin);
}

function serveHttp(request: IncomingMessage, response: ServerResponse): void {
  const bytes = Number(/^\/bytes\/(\d+)$/.exec(request.url ?? "")?.[1] ?? -1);
  if (bytes >= 0) {
    response.setHeader("content-length", bytes);
    pour(response, bytes);
    return;
  }
  request.on("data", () => undefined);
  request.on("end", () => response.end("x"));
}

/** Every name below the domain is at this address. */
function answerTo(query: Buffer): Buffer | undefined {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += length + 1;
  }
  if (query.length < at + 5) return undefined;
  const isKnown = labels.join(".").endsWith(domain);
  const isAddress = isKnown && query.readUInt16BE(at + 1) === 1;
  const head = Buffer.alloc(12);
  query.copy(head, 0, 0, 2);
  head.writeUInt16BE(isKnown ? 0x8180 : 0x8183, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(isAddress ? 1 : 0, 6);
  // A pointer to the name in the question, type A, class IN, a minute, four bytes.
  const record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address.split(".").map(Number)];
  return Buffer.concat([head, query.subarray(12, at + 5), Buffer.from(isAddress ? record : [])]);
}

const dns = createSocket("udp4", (query, { address: from, port }) => {
  const answer = answerTo(query);
  if (answer) dns.send(answer, port, from);
});
await new Promise<void>((resolve) => dns.bind(serverPorts.dns, address, resolve));
const servers = [
  [createHttp(serveHttp), serverPorts.http],
  [createTcp(serveRaw), serverPorts.raw],
] as const;
for (const [server, port] of servers)
  await new Promise<void>((resolve) => void server.listen(port, address, resolve));
process.on("disconnect", () => process.exit(0));
process.send?.("ready");
