import assert from "node:assert/strict";
import type net from "node:net";
import test, { type TestContext } from "node:test";
import { nativeTool, nullLogger } from "@forkd/base";
import { rejectsWith } from "@forkd/test-support";
import { Gate } from "../../src/gate/gate.ts";
import { namespace } from "../support/namespace.ts";
import { once, patient, received } from "../support/sockets.ts";

async function gateOf(t: TestContext, onExit?: () => void): Promise<Gate> {
  const gate = await Gate.start(nativeTool("forkd-gate"), nullLogger(), onExit);
  t.after(() => gate[Symbol.asyncDispose]());
  return gate;
}

test("sockets of a namespace arrive as Node's own: listeners, datagrams, connections", async (t) => {
  const [gate, process] = await Promise.all([gateOf(t), namespace(t)]);
  const servers = await gate.listen(process, [61_000, 61_001]);
  t.after(() => servers.forEach((server) => server.close()));
  const dialled: string[] = [];
  for (const server of servers)
    server.on("connection", (socket: net.Socket) => {
      dialled.push(`${socket.localAddress}:${socket.localPort}`);
      socket.end("hello");
    });
  // Every TCP connection of the namespace ends at the first listener, with the address that was dialled.
  for (const [address, port] of [
    ["192.0.2.1", 443],
    ["198.18.3.4", 22],
    ["127.0.0.1", 9],
  ] as const)
    assert.equal(await received(await gate.connect(process, address, port, 5000)), "hello");
  assert.deepEqual(dialled, ["192.0.2.1:443", "198.18.3.4:22", "127.0.0.1:9"]);
  const [inside, outside] = [
    await gate.datagram(process, "10.0.2.2", 53),
    await gate.datagram(process, "10.0.2.15", 4000),
  ];
  t.after(() => [inside, outside].forEach((socket) => socket.close()));
  outside.send("ping", 53, "10.0.2.2");
  const [bytes] = (await once(inside, "message")) as [Buffer];
  assert.equal(bytes.toString(), "ping");
});

test("requests fail for a process that is gone or another one, and for connections that are refused", async (t) => {
  const [gate, process] = await Promise.all([gateOf(t), namespace(t)]);
  await rejectsWith(gate.listen({ ...process, startTime: process.startTime + 1 }, [1]), "engine_failed");
  await rejectsWith(gate.listen({ pid: 0x7fffff, startTime: 1 }, [1]), "engine_failed");
  const error = await rejectsWith(gate.connect(process, "192.0.2.1", 80, 5000), "engine_failed");
  assert.equal(error.details["code"], "ECONNREFUSED");
});

test("a port and an address that another process still holds are bound when they are free", async (t) => {
  const [old, gate, process] = await Promise.all([gateOf(t), gateOf(t), namespace(t)]);
  const [server] = await old.listen(process, [61_000]);
  const socket = await old.datagram(process, "10.0.2.2", 53);
  const release = setTimeout(() => {
    server?.close();
    socket.close();
  }, 300);
  t.after(() => clearTimeout(release));
  const [servers, datagram] = await Promise.all([
    gate.listen(process, [61_000]),
    gate.datagram(process, "10.0.2.2", 53),
  ]);
  servers[0]?.close();
  datagram.close();
});

test("hundreds of requests at a time are all answered", async (t) => {
  const [gate, process] = await Promise.all([gateOf(t), namespace(t)]);
  const [server] = await gate.listen(process, [61_000]);
  t.after(() => server?.close());
  server?.on("connection", (socket) => socket.end());
  const sockets = await Promise.all(
    Array.from({ length: 500 }, () => gate.connect(process, "192.0.2.1", 80, 20_000)),
  );
  for (const socket of sockets) socket.destroy();
  assert.equal(sockets.length, 500);
});

test("a gate that exits fails what waits and says so", async (t) => {
  let onExit: () => void = () => undefined;
  const exited = new Promise<void>((resolve) => (onExit = resolve));
  const gate = await gateOf(t, () => onExit());
  process.kill(gate.pid ?? 0, "SIGKILL");
  await patient(exited, "the exit");
  await rejectsWith(gate.listen({ pid: 1, startTime: 1 }, [1]), "engine_failed", /closed/);
});
