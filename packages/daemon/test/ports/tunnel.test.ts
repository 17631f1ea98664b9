import assert from "node:assert/strict";
import { once } from "node:events";
import type net from "node:net";
import { test } from "node:test";
import { until } from "@forkd/test-support";
import { deferred, sandboxId, send } from "../support.ts";
import { hostOf, httpGuest, portToken, rawGuest, startPorts, upgradeTo, withToken } from "./support.ts";

const pathOf = (port: number) => `/v1/sandboxes/${sandboxId}/ports/${port}/tcp`;
const tcp = { upgrade: "forkd-tcp" };

/** Resolves when the other side has closed the connection, by an end or by a reset. */
function gone(socket: net.Socket): Promise<void> {
  return new Promise((resolve) => {
    socket.on("error", () => undefined).resume();
    socket.once("end", resolve).once("close", () => resolve());
  });
}

async function textOf(socket: net.Socket): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

test("a tunnel carries bytes in both directions and passes on the end of each", async (t) => {
  const server = await startPorts(t);
  const { port } = await rawGuest(t, (socket) => {
    const pieces: Buffer[] = [];
    socket.write("welcome ");
    socket.on("data", (piece: Buffer) => pieces.push(piece));
    socket.on("end", () => socket.end(Buffer.concat([Buffer.from("got "), ...pieces])));
  });
  for (const where of [server.url, server.socket]) {
    const { status, socket, head } = await upgradeTo(where, {
      path: pathOf(port),
      headers: { ...tcp, ...withToken },
    });
    assert.equal(status, 101);
    assert.equal(server.traffic.active, 0, "only its bytes are activity");
    socket.end("hello");
    assert.equal(head.toString() + (await textOf(socket)), "welcome got hello");
  }
  assert.ok(server.traffic.bytes > 0);
  await until("it is observed", () => server.observed.length === 2);
  assert.deepEqual(
    server.observed.map(({ route, status }) => [route, status]),
    [
      ["connectPort", 101],
      ["connectPort", 101],
    ],
  );
  const lines = await server.audited();
  assert.deepEqual(
    lines.map(({ principal, status }) => [principal, status]),
    [
      ["token", 101],
      ["local", 101],
    ],
  );
});

test("a tunnel needs the scope run, the header and a server in the guest", async (t) => {
  const server = await startPorts(t);
  const { port } = await rawGuest(t, () => undefined);
  const { key } = await server.keys.create({ name: "reader", scope: "read" });
  const statuses = [];
  for (const headers of [{}, { authorization: `Bearer ${key}` }, withToken])
    statuses.push(
      (await upgradeTo(server.url, { path: pathOf(port), headers: { ...tcp, ...headers } })).status,
    );
  assert.deepEqual(statuses, [401, 403, 101]);
  const plain = await send(server.url, pathOf(port), { headers: withToken });
  assert.deepEqual([plain.status, plain.json.code], [400, "invalid_request"]);
  const refused = await upgradeTo(server.url, { path: pathOf(1), headers: { ...tcp, ...withToken } });
  assert.equal(refused.status, 502);
  assert.equal((JSON.parse(refused.text) as { code: string }).code, "port_refused");
});

test("a tunnel closes when its key is removed, when the guest goes, and when the daemon stops", async (t) => {
  const server = await startPorts(t);
  const { key } = await server.keys.create({ name: "ci", scope: "run" });
  const sockets: net.Socket[] = [];
  const { port } = await rawGuest(t, (socket) => void sockets.push(socket.resume()));
  const open = async () => {
    const headers = { ...tcp, authorization: `Bearer ${key}` };
    const { socket } = await upgradeTo(server.url, { path: pathOf(port), headers });
    return { closed: gone(socket) };
  };
  const first = await open();
  sockets[0]?.resetAndDestroy();
  await first.closed;
  const second = await open();
  await server.keys.remove("ci");
  await second.closed;
  await server.keys.create({ name: "ci", scope: "run" });
  const { socket } = await upgradeTo(server.socket, { path: pathOf(port), headers: tcp });
  const closed = gone(socket);
  server.ports.stop();
  await closed;
});

test("a client that goes closes the connection in the guest", async (t) => {
  const server = await startPorts(t);
  const left = deferred<void>();
  const { port } = await rawGuest(t, (socket) => void gone(socket).then(() => left.resolve()));
  const headers = { ...tcp, ...withToken };
  const { socket } = await upgradeTo(server.url, { path: pathOf(port), headers });
  socket.on("error", () => undefined);
  socket.resetAndDestroy();
  await left.promise;
});

test("16 MiB pass through a tunnel to a reader that pauses", async (t) => {
  const server = await startPorts(t);
  const { port } = await rawGuest(t, (socket) => void socket.pipe(socket));
  const { socket } = await upgradeTo(server.socket, { path: pathOf(port), headers: tcp });
  const size = 16 * 1024 * 1024;
  const sent = (async () => {
    for (let at = 0; at < size; at += 65_536)
      if (!socket.write(Buffer.alloc(65_536, at >> 16))) await once(socket, "drain");
    socket.end();
  })();
  let got = 0;
  for await (const chunk of socket) {
    const bytes = chunk as Buffer;
    assert.equal(bytes[0], (got >> 16) & 255);
    got += bytes.length;
    if (got < 1_000_000) await new Promise((resolve) => setTimeout(resolve, 2));
  }
  await sent;
  assert.equal(got, size);
});

test("a WebSocket passes by host name and by path, with what both sides sent early", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(
    t,
    (_, response) => response.writeHead(400).end("no websocket"),
    (guest) =>
      guest.on("upgrade", (request, socket) => {
        const answer = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", "Upgrade: websocket"];
        answer.push(`Sec-WebSocket-Accept: ${request.headers["sec-websocket-key"]}`, "", "early ");
        socket.write(answer.join("\r\n"));
        socket.pipe(socket);
      }),
  );
  server.open.set(port, { public: false, token: portToken });
  const headers = { upgrade: "websocket", "sec-websocket-key": "abc", "sec-websocket-version": "13" };
  const byHost = { ...headers, host: hostOf(port), "x-forkd-port-token": portToken };
  for (const request of [
    { path: "/", headers: byHost },
    { path: `/?forkd_token=${portToken}`, headers: { ...headers, host: hostOf(port) } },
    { path: `/v1/sandboxes/${sandboxId}/ports/${port}/proxy/`, headers: { ...headers, ...withToken } },
  ]) {
    const { status, headers: answer, socket, head } = await upgradeTo(server.url, request);
    assert.equal(status, 101);
    assert.equal(answer["sec-websocket-accept"], "abc");
    socket.end("ping");
    assert.equal(head.toString() + (await textOf(socket)), "early ping");
  }
  const refused = await upgradeTo(server.url, { path: "/", headers: { ...headers, host: hostOf(port) } });
  assert.equal(refused.status, 401);
  const closed = gone((await upgradeTo(server.url, { path: "/", headers: byHost })).socket);
  server.cut(port);
  await closed;
});

test("a guest that refuses a WebSocket answers as to any request", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, (_, response) =>
    response.writeHead(426, { "x-why": "no" }).end("no websocket"),
  );
  server.open.set(port, { public: true, token: portToken });
  const answer = await upgradeTo(server.url, {
    path: "/",
    headers: { upgrade: "websocket", host: hostOf(port) },
  });
  assert.deepEqual([answer.status, answer.headers["x-why"], answer.text], [426, "no", "no websocket"]);
});
