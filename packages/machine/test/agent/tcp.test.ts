import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { test } from "node:test";
import { createDeferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { connectTcp } from "../../src/agent/tcp.ts";
import { RealAgent } from "./support/real-agent.ts";

async function listen(onConnection: (socket: Socket) => void): Promise<{ port: number; server: Server }> {
  const server = createServer({ allowHalfOpen: true }, onConnection);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: (server.address() as AddressInfo).port, server };
}

test("connectTcp() carries bytes in both directions and passes on a half-close", async () => {
  await using agent = await RealAgent.open();
  const { port, server } = await listen((socket) => {
    const pieces: Buffer[] = [];
    socket.on("data", (piece: Buffer) => pieces.push(piece));
    socket.on("end", () => socket.end(Buffer.concat([Buffer.from("got "), ...pieces])));
  });
  const stream = connectTcp(agent.client, port);
  stream.write("hello ");
  stream.end("world");
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(piece as Buffer);
  assert.equal(Buffer.concat(pieces).toString(), "got hello world");
  server.close();
});

test("connectTcp() carries 16 MiB to a reader that pauses in between", async () => {
  await using agent = await RealAgent.open();
  const size = 16 * 1024 * 1024;
  const { port, server } = await listen((socket) => socket.pipe(socket));
  const stream = connectTcp(agent.client, port, "localhost");
  const sent = (async () => {
    for (let at = 0; at < size; at += 65_536) {
      if (!stream.write(Buffer.alloc(65_536, at >> 16))) await once(stream, "drain");
    }
    stream.end();
  })();
  let seen = 0;
  for await (const piece of stream) {
    const bytes = piece as Buffer;
    assert.equal(bytes[0], (seen >> 16) & 255);
    seen += bytes.length;
    if (seen < 1_000_000) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await sent;
  assert.equal(seen, size);
  server.close();
});

test("a refused connection makes the stream fail", async () => {
  await using agent = await RealAgent.open();
  const { port, server } = await listen(() => undefined);
  server.close();
  await once(server, "close");
  const stream = connectTcp(agent.client, port);
  const [error] = (await once(stream, "error")) as [AppError];
  assert.deepEqual([error.code, error.details["errno"]], ["guest_refused", "ECONNREFUSED"]);
  await agent.client.ping();
});

test("destroying the stream closes the connection in the guest", async () => {
  await using agent = await RealAgent.open();
  const accepted = createDeferred<Socket>();
  const { port, server } = await listen((socket) => accepted.resolve(socket));
  const stream = connectTcp(agent.client, port);
  stream.write("x");
  const socket = await accepted.promise;
  socket.resume();
  const gone = new Promise<void>((resolve) => socket.once("end", resolve).once("error", () => resolve()));
  stream.destroy();
  await once(stream, "close");
  await gone;
  socket.destroy();
  assert.deepEqual(await agent.client.list(), []);
  server.close();
});
