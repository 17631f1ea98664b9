import assert from "node:assert/strict";
import http from "node:http";
import type net from "node:net";
import test from "node:test";
import { fixture } from "../support/fixture.ts";
import { random } from "../support/random.ts";
import { once, received } from "../support/sockets.ts";

const seeds = [
  "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
  "POST /x HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n3\r\nabc\r\n0\r\nX: 1\r\n\r\n",
  "PUT /y HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
  "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
  "GET /h2 HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
  "CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\nGET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
  "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
  "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
  "SSH-2.0-x\r\n",
];

test("no bytes of a guest end the proxy or reach another host", async (t) => {
  const hosts = new Set<string>();
  const server = http.createServer((request, response) => {
    hosts.add(String(request.headers.host));
    request.pipe(response);
  });
  server.on("connection", (socket: net.Socket) => socket.on("error", () => undefined));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as net.AddressInfo;
  const { guest } = await fixture(t, {
    records: { "a.example": ["127.0.0.1"] },
    rules: [`allow a.example:${port}`, `allow 127.0.0.1:${port}`],
    limits: { connections: 4096 },
  });
  const address = String(await guest.resolve("a.example"));
  const { below, pick, bytes } = random();
  const attack = async (): Promise<void> => {
    const parts = Array.from({ length: 1 + below(3) }, () =>
      Buffer.from(pick(seeds).replaceAll("a.example:80", `a.example:${port}`), "latin1"),
    );
    const data = Buffer.concat(parts);
    for (let change = below(5); change > 0; change--) data[below(data.length)] = below(256);
    const socket = await guest
      .dial(below(4) === 0 ? "10.0.2.2" : address, below(4) === 0 ? 3128 : port)
      .catch(() => undefined);
    if (!socket) return;
    const cut = below(data.length);
    socket.write(data.subarray(0, cut));
    socket.write(below(3) === 0 ? bytes(below(100)) : data.subarray(cut));
    if (below(2) === 0) socket.end();
    setTimeout(() => socket.destroy(), 50 + below(300));
    await received(socket);
  };
  for (let round = 0; round < 20; round++) await Promise.all(Array.from({ length: 20 }, attack));
  for (const host of hosts) assert.match(host, /^(?:a\.example\.?|127\.0\.0\.1)(?::\d+)?$/i);
  const socket = await guest.dial(address, port);
  socket.write("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
  assert.match(await received(socket), /^HTTP\/1\.1 200 /);
});
