import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { nullLogger } from "@forkd/base";
import { networkOf } from "../../src/access/peer.ts";
import { RateLimiter } from "../../src/access/rate-limit.ts";
import { send, startServer, token } from "../support.ts";

const handlers = { health: () => ({ ok: true }), listSnapshots: async () => [] };
const bearer = (key: string) => ({ headers: { authorization: `Bearer ${key}` } });

test("RateLimiter allows a burst, then a number per second, for each name", () => {
  const limiter = new RateLimiter({ perSecond: 2, burst: 3 });
  assert.deepEqual(
    [0, 0, 0].map((at) => limiter.take("a", at)),
    [0, 0, 0],
  );
  assert.equal(limiter.take("a", 0), 0.5);
  assert.equal(limiter.take("b", 0), 0);
  assert.equal(limiter.take("a", 250), 0.25);
  assert.equal(limiter.take("a", 500), 0);
  assert.ok(limiter.take("a", 500) > 0);
  for (let at = 0; at < 3; at++) assert.equal(limiter.take("a", 3_600_000), 0);
  assert.ok(limiter.take("a", 3_600_000) > 0);
  const off = new RateLimiter({ perSecond: 0, burst: 1 });
  for (let at = 0; at < 100; at++) assert.equal(off.take("a", 0), 0);
});

test("RateLimiter keeps a bounded number of names", () => {
  const limiter = new RateLimiter({ perSecond: 1, burst: 1 });
  assert.equal(limiter.take("first", 0), 0);
  assert.ok(limiter.take("first", 0) > 0);
  for (let at = 0; at < 10_000; at++) limiter.take(`name-${at}`, 0);
  assert.equal(limiter.take("first", 0), 0);
});

test("networkOf() keeps IPv4 addresses and 64 bits of IPv6 addresses", () => {
  assert.equal(networkOf("192.0.2.1"), "192.0.2.1");
  assert.equal(networkOf("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2");
  assert.equal(networkOf("2001:db8::1"), networkOf("2001:db8::ffff:2"));
  assert.notEqual(networkOf("2001:db8:0:1::1"), networkOf("2001:db8::1"));
  assert.equal(networkOf("::1"), "0:0:0:0");
  assert.equal(networkOf("fe80::1%eth0"), "fe80:0:0:0");
});

test("a principal over its rate gets 429 with Retry-After; others, the unix socket and health do not", async () => {
  await using server = await startServer(handlers, nullLogger(), {
    gate: { rate: { perSecond: 0.001, burst: 2 } },
  });
  const { key } = await server.keys.create({ name: "ci", scope: "read" });
  const ask = (how: object) => send(server.url, "/v1/snapshots", how);
  assert.deepEqual([(await ask(bearer(key))).status, (await ask(bearer(key))).status], [200, 200]);
  const refused = await ask(bearer(key));
  assert.deepEqual([refused.status, refused.json.code], [429, "rate_limited"]);
  assert.ok(Number(refused.headers["retry-after"]) >= 1);
  assert.equal(refused.json.details.retry_after_secs, Number(refused.headers["retry-after"]));
  assert.equal((await ask(bearer(token))).status, 200);
  for (let at = 0; at < 5; at++) {
    assert.equal((await send(server.socket, "/v1/snapshots")).status, 200);
    assert.equal((await send(server.url, "/healthz")).status, 200);
  }
});

test("wrong tokens from one address are limited, and do not lock out a right one", async () => {
  await using server = await startServer(handlers);
  const statuses: number[] = [];
  for (let at = 0; at < 40; at++)
    statuses.push((await send(server.url, "/v1/snapshots", bearer(`wrong-${at}`))).status);
  assert.equal(statuses[0], 401);
  assert.ok(statuses.includes(429), statuses.join(" "));
  assert.equal((await send(server.url, "/v1/snapshots", bearer(token))).status, 200);
});

test("foreign Hosts from one address are limited too", async () => {
  await using server = await startServer(handlers);
  const codes = new Set<string>();
  for (let at = 0; at < 40; at++)
    codes.add((await send(server.url, "/healthz", { headers: { host: "evil.example" } })).json.code);
  assert.deepEqual([...codes], ["forbidden", "rate_limited"]);
  assert.equal((await send(server.url, "/healthz")).status, 200);
});

test("the daemon does not wait for the body of an unknown client", { timeout: 60_000 }, async () => {
  await using server = await startServer(handlers);
  const { hostname, port } = new URL(server.url);
  const socket = net.connect(Number(port), hostname);
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  socket.write(`POST /v1/cleanup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{`);
  await once(socket, "close");
  assert.match(text, /^HTTP\/1\.1 401 /);
  assert.match(text, /connection: close/i);
});

test(
  "a head that does not come to its end is cut off, while others are served",
  { timeout: 60_000 },
  async () => {
    await using server = await startServer(handlers, nullLogger(), {
      server: { limits: { headersMs: 1000 } },
    });
    const { hostname, port } = new URL(server.url);
    const slow = Array.from({ length: 20 }, () => net.connect(Number(port), hostname));
    const closed = slow.map((socket) => once(socket, "close"));
    for (const socket of slow) {
      socket.resume();
      socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    }
    assert.equal((await send(server.url, "/healthz")).status, 200);
    await Promise.all(closed);
  },
);

test("headers that are too long are refused", async () => {
  await using server = await startServer(handlers);
  const headers = { "x-long": "x".repeat(20_000) };
  const { status, json } = await send(server.url, "/healthz", { headers });
  assert.deepEqual([status, json.code], [400, "invalid_request"]);
});

test("connections over the limit are refused on TCP; the unix socket has its own", async () => {
  await using server = await startServer(handlers, nullLogger(), {
    server: { limits: { maxConnections: 2 } },
  });
  const { hostname, port } = new URL(server.url);
  const held = [net.connect(Number(port), hostname), net.connect(Number(port), hostname)];
  await Promise.all(held.map((socket) => once(socket, "connect")));
  await assert.rejects(send(server.url, "/healthz"));
  assert.equal((await send(server.socket, "/healthz")).status, 200);
  for (const socket of held) socket.destroy();
});

test("one address has its own limit of connections, and gets room again when one of them ends", async () => {
  await using server = await startServer(handlers, nullLogger(), {
    server: { limits: { maxPerAddress: 2, isOwnAddress: (address) => address === "127.0.0.2" } },
  });
  const { hostname, port } = new URL(server.url);
  const connect = async (localAddress: string) => {
    const socket = net.connect({ port: Number(port), host: hostname, localAddress });
    socket.on("error", () => undefined);
    await once(socket, "connect");
    return socket;
  };
  const held = [await connect("127.0.0.1"), await connect("127.0.0.1")];
  await once((await connect("127.0.0.1")).resume(), "close");
  const ask = async (localAddress: string) => {
    const socket = await connect(localAddress);
    const answered = once(socket, "data");
    socket.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return String((await Promise.race([answered, once(socket, "close")]))[0]).startsWith("HTTP/1.1 200");
  };
  for (let at = 0; at < 3; at++) held.push(await connect("127.0.0.2"));
  assert.equal(await ask("127.0.0.2"), true);
  assert.equal(await ask("127.0.0.3"), true);
  held[0]?.destroy();
  // Only the server sees the end of the connection.
  while (!(await ask("127.0.0.1"))) await new Promise((resolve) => setTimeout(resolve, 5));
  for (const socket of held) socket.destroy();
});

test("a silent connection is closed", { timeout: 60_000 }, async () => {
  await using server = await startServer(handlers, nullLogger(), {
    server: { limits: { headersMs: 100 } },
  });
  const { hostname, port } = new URL(server.url);
  await once(net.connect(Number(port), hostname).resume(), "close");
});
