import assert from "node:assert/strict";
import { once } from "node:events";
import http, { type IncomingMessage, type ServerResponse } from "node:http";
import net, { type AddressInfo } from "node:net";
import { pipeline } from "node:stream";
import { after, before, test } from "node:test";
import { createGunzip } from "node:zlib";
import { sendEmpty, sendJson, sendWhole } from "../src/http/answer.ts";
import { bodyPieces } from "../src/http/body.ts";

const mib = 1024 * 1024;
let serve: (incoming: IncomingMessage, outgoing: ServerResponse) => void | Promise<void>;
const server = http.createServer((incoming, outgoing) => void serve(incoming, outgoing));
before(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
after(() => server.close());

/** A request whose body has `bytes` bytes, of which none has been sent. */
function begin(bytes: number): net.Socket {
  const client = net.connect((server.address() as AddressInfo).port, "127.0.0.1");
  client.write(`POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${bytes}\r\n\r\n`);
  return client;
}

/** Sends the whole request before it reads any of the answer. */
async function sendAllThenRead(bytes: number): Promise<string> {
  const client = begin(bytes);
  for (let sent = 0; sent < bytes; sent += mib)
    await new Promise<void>((resolve, reject) =>
      client.write(Buffer.alloc(Math.min(mib, bytes - sent)), (error) => (error ? reject(error) : resolve())),
    );
  let text = "";
  for await (const piece of client) text += String(piece);
  return text;
}

async function firstOf(body: AsyncIterable<unknown>): Promise<void> {
  for await (const piece of body) return void piece;
}

for (const [how, read] of [
  ["not read", () => Promise.resolve()],
  ["read in part", (incoming: IncomingMessage) => firstOf(bodyPieces(incoming))],
  [
    "read in part by a decoder that fails",
    (incoming: IncomingMessage) =>
      new Promise<void>((resolve) => pipeline(bodyPieces(incoming), createGunzip(), () => resolve())),
  ],
] as const) {
  test(`a client that sends its whole request first reads the answer to one that was ${how}`, async () => {
    serve = async (incoming, outgoing) => {
      await read(incoming);
      sendJson({ outgoing }, 507, { code: 507 });
    };
    const text = await sendAllThenRead(32 * mib);
    assert.match(text, /^HTTP\/1\.1 507 .*\r\nconnection: close\r\n.*\r\n\r\n\{"code":507\}$/is);
  });
}

test("an answer without a body comes before the request has ended", async () => {
  serve = (_incoming, outgoing) => sendEmpty({ outgoing }, 204);
  const client = begin(2);
  const [answer] = (await once(client, "data")) as [Buffer];
  assert.match(String(answer), /^HTTP\/1\.1 204 /);
  client.write("ab");
  client.resume();
  await once(client, "end");
});

test("an answer to a whole request keeps the connection", async () => {
  serve = async (incoming, outgoing) => {
    for await (const piece of bodyPieces(incoming)) void piece;
    sendJson({ outgoing }, 200, {});
  };
  const client = begin(2);
  client.write("ab");
  const [answer] = (await once(client, "data")) as [Buffer];
  assert.match(String(answer), /^HTTP\/1\.1 200 OK\r\n.*connection: keep-alive\r\n/is);
  client.destroy();
});

test("a client that does not stop sending is disconnected", { timeout: 60_000 }, async () => {
  serve = (_incoming, outgoing) =>
    sendWhole(outgoing, { status: 507, text: "full" }, { bytes: mib, ms: 3_600_000 });
  const client = begin(1024 * mib);
  client.on("error", () => undefined).resume();
  while (!client.closed) await new Promise((resolve) => client.write(Buffer.alloc(64 * 1024), resolve));
  assert.ok(client.bytesWritten < 512 * mib);
});

test("a client that neither sends the rest nor leaves is disconnected", { timeout: 60_000 }, async () => {
  serve = (_incoming, outgoing) => sendWhole(outgoing, { status: 507, text: "full" }, { bytes: mib, ms: 1 });
  const client = begin(2);
  client.resume();
  await once(client, "end");
});
