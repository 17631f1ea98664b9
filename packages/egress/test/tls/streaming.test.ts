import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import type net from "node:net";
import { test } from "node:test";
import { connect as tlsConnect, type TLSSocket } from "node:tls";
import { AppError } from "@forkd/contract";
import { gate, until } from "@forkd/test-support";
import {
  guestSocket,
  host,
  intercepted,
  placeholder,
  request,
  value,
  type Intercepted,
} from "../support/intercepted.ts";

const bearer = { authorization: `Bearer ${placeholder}` };
const megabyte = randomBytes(1024 * 1024);

function session(t: { after(undo: () => void): void }, proxy: Intercepted): http2.ClientHttp2Session {
  const createConnection = (): TLSSocket =>
    tlsConnect({
      host: "127.0.0.1",
      port: proxy.port,
      servername: host,
      ca: proxy.ca,
      ALPNProtocols: ["h2"],
    });
  const client = http2.connect(`https://${host}`, { createConnection });
  client.on("error", () => undefined);
  t.after(() => client.destroy());
  return client;
}

/** Sends `count` megabytes, at the pace of the reader. */
async function sendMegabytes(sink: NodeJS.WritableStream, count: number): Promise<void> {
  for (let at = 0; at < count; at++) if (!sink.write(megabyte)) await once(sink, "drain");
  sink.end();
}

const digest = async (source: AsyncIterable<unknown>): Promise<string> => {
  const hash = createHash("sha256");
  for await (const chunk of source) hash.update(chunk as Buffer);
  return hash.digest("hex");
};

const echoDigest: http.RequestListener = (req, res) => {
  void digest(req).then((text) => {
    res.setHeader("X-Digest", text);
    return sendMegabytes(res, 8);
  });
};

async function expectedDigest(count: number): Promise<string> {
  return digest(
    (async function* () {
      for (let at = 0; at < count; at++) yield megabyte;
    })(),
  );
}

test("large bodies pass both ways over HTTP/1.1 and HTTP/2, and are counted", async (t) => {
  const proxy = await intercepted(t, { handler: echoDigest });
  const expected = await expectedDigest(8);
  const req = https.request({
    ...{ host: "127.0.0.1", port: proxy.port, servername: host, ca: proxy.ca, agent: false, method: "POST" },
    headers: { host, ...bearer },
  });
  void sendMegabytes(req, 8);
  const [res] = (await once(req, "response")) as [http.IncomingMessage];
  assert.equal(res.headers["x-digest"], expected);
  assert.equal(await digest(res), expected);

  const stream = session(t, proxy).request({ ":method": "PUT", ":path": "/", ...bearer });
  void sendMegabytes(stream, 8);
  const [headers] = (await once(stream, "response")) as [http2.IncomingHttpHeaders];
  assert.equal(headers["x-digest"], expected);
  assert.equal(await digest(stream), expected);
  const all = 16 * megabyte.length;
  assert.ok(proxy.bytes.out > all && proxy.bytes.out < all + 10_000);
  assert.ok(proxy.bytes.in > all && proxy.bytes.in < all + 10_000);
});

test("a guest that does not read stops the host, and the other way round", async (t) => {
  let sent = 0;
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      if (req.method === "POST") return void req.pause();
      const push = (): void => {
        while (sent < 512 && res.write(megabyte)) sent++;
        if (sent < 512) res.once("drain", push);
      };
      push();
    },
  });
  const socket = await guestSocket(proxy, { ALPNProtocols: ["http/1.1"] });
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  await once(socket, "readable");
  const stream = session(t, proxy).request({ ":path": "/", ":method": "POST" });
  let uploaded = 0;
  const upload = (): void => {
    while (uploaded < 512 && stream.write(megabyte)) uploaded++;
    if (uploaded < 512) stream.once("drain", upload);
  };
  upload();
  let before = { ...proxy.bytes };
  // Nothing announces that no more bytes move: wait until two looks agree.
  await until("no more bytes move", async () => {
    await new Promise((resolve) => setTimeout(resolve, 200));
    const isQuiet = before.in === proxy.bytes.in && before.out === proxy.bytes.out;
    before = { ...proxy.bytes };
    return isQuiet;
  });
  assert.ok(proxy.bytes.in < 64 * megabyte.length && proxy.bytes.out < 64 * megabyte.length);
  socket.destroy();
});

test("server-sent events arrive one by one, before the response ends", async (t) => {
  const next = [gate(), gate()];
  const proxy = await intercepted(t, {
    handler: (_, res) => {
      res.writeHead(200, { "Content-Type": "text/event-stream" });
      res.flushHeaders();
      void next[0]?.opened.then(() => res.write("data: 1\n\n"));
      void next[1]?.opened.then(() => res.end("data: 2\n\n"));
    },
  });
  const check = async (source: AsyncIterable<unknown>): Promise<void> => {
    next[0]?.open();
    const parts: string[] = [];
    for await (const chunk of source) {
      parts.push(String(chunk));
      next[1]?.open();
    }
    assert.deepEqual(parts, ["data: 1\n\n", "data: 2\n\n"]);
  };
  const req = https.request({
    ...{ host: "127.0.0.1", port: proxy.port, servername: host, ca: proxy.ca, agent: false },
    headers: { host, ...bearer },
  });
  req.end();
  const [res] = (await once(req, "response")) as [http.IncomingMessage];
  await check(res);
  next.splice(0, 2, gate(), gate());
  const stream = session(t, proxy).request({ ":path": "/", ...bearer });
  await once(stream, "response");
  await check(stream);
});

test("trailers pass both ways", async (t) => {
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      req.resume();
      req.once("end", () => {
        res.write("body");
        res.addTrailers({ "x-sum": `${req.trailers["x-check"]} ${value}` });
        res.end();
      });
    },
  });
  const req = https.request({
    ...{ host: "127.0.0.1", port: proxy.port, servername: host, ca: proxy.ca, agent: false, method: "POST" },
    headers: { host, ...bearer, trailer: "x-check", "transfer-encoding": "chunked" },
  });
  req.write("x");
  req.addTrailers({ "x-check": "42" });
  req.end();
  const [res] = (await once(req, "response")) as [http.IncomingMessage];
  await digest(res);
  assert.equal(res.trailers["x-sum"], `42 ${placeholder}`);

  const stream = session(t, proxy).request({ ":path": "/", ":method": "POST" }, { waitForTrailers: true });
  stream.once("wantTrailers", () => stream.sendTrailers({ "x-check": "43" }));
  stream.end("x");
  const trailers = once(stream, "trailers");
  await digest(stream);
  assert.equal(((await trailers) as [http2.IncomingHttpHeaders])[0]["x-sum"], `43 ${placeholder}`);
});

test("a host is cut off when its guest is gone in the middle of a response or a request", async (t) => {
  let closed = 0;
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      req.on("error", () => undefined);
      req.resume();
      res.once("close", () => closed++);
      res.write("begun");
    },
  });
  const socket = await guestSocket(proxy, { ALPNProtocols: ["http/1.1"] });
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  await once(socket, "data");
  socket.destroy();
  await until("the host saw the end", () => closed === 1);

  const client = session(t, proxy);
  const stream = client.request({ ":path": "/", ":method": "POST" });
  stream.on("error", () => undefined);
  stream.write("some");
  await once(stream, "data");
  const other = client.request({ ":path": "/" });
  await once(other, "data");
  stream.close(http2.constants.NGHTTP2_CANCEL);
  await until("the host saw the end of one", () => closed === 2);
  assert.ok(!other.destroyed);
  client.destroy();
  await until("the host saw the end of both", () => closed === 3);
  await until("no connection is left", () => proxy.connections.every(({ destroyed }) => destroyed));
});

test("a response that the host cuts does not look complete", async (t) => {
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      res.write("part");
      setImmediate(() => req.socket.destroy());
    },
  });
  await assert.rejects(request(proxy, "/"));
  const stream = session(t, proxy).request({ ":path": "/" });
  await assert.rejects(digest(stream));
});

test("a host that closes before it answers is a 502; one that answers an upload early is heard", async (t) => {
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      if (req.url === "/close") return void req.socket.destroy();
      res.writeHead(413, { Connection: "close" });
      res.end("too large");
    },
  });
  assert.equal((await request(proxy, "/close", { headers: bearer })).status, 502);
  const reply = await request(proxy, "/", { method: "POST", body: Buffer.alloc(500_000), headers: bearer });
  assert.deepEqual([reply.status, reply.text], [413, "too large"]);
});

test("a guest waits for 100 Continue of the host", async (t) => {
  const proxy = await intercepted(t, {
    handler: () => assert.fail("not expected"),
    onServer: (server) =>
      server.on("checkContinue", (req: http.IncomingMessage, res: http.ServerResponse) => {
        if (req.url === "/no") return void res.writeHead(417).end();
        res.writeContinue();
        void digest(req).then((text) => res.end(text));
      }),
  });
  for (const [path, status] of [
    ["/yes", 200],
    ["/no", 417],
  ] as const) {
    const req = https.request({
      ...{ host: "127.0.0.1", port: proxy.port, servername: host, ca: proxy.ca, agent: false, method: "PUT" },
      path,
      headers: { host, ...bearer, expect: "100-continue", "content-length": 3 },
    });
    req.once("continue", () => req.end("abc"));
    const [res] = (await once(req, "response")) as [http.IncomingMessage];
    assert.equal(res.statusCode, status);
    req.destroy();
  }
});

test("a WebSocket passes both ways with the value in its request", async (t) => {
  const proxy = await intercepted(t, {
    handler: (_, res) => res.writeHead(403).end("no"),
    onUpgrade: (req, socket: net.Socket) => {
      if (req.url === "/no")
        return void socket.end("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
      assert.equal(req.headers.authorization, `Bearer ${value}`);
      assert.equal(req.headers["sec-websocket-extensions"], undefined);
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-T: ${value}\r\n\r\nfirst`,
      );
      socket.on("data", (chunk) => socket.write(`echo ${String(chunk)} ${value}`));
    },
  });
  const upgrade = (path: string) =>
    https.request({
      ...{ host: "127.0.0.1", port: proxy.port, servername: host, ca: proxy.ca, agent: false, path },
      headers: {
        ...{ host, ...bearer, connection: "Upgrade", upgrade: "websocket" },
        ...{ "sec-websocket-version": "13", "sec-websocket-extensions": "permessage-deflate" },
      },
    });
  const req = upgrade("/");
  req.end();
  const [res, socket, head] = (await once(req, "upgrade")) as [http.IncomingMessage, net.Socket, Buffer];
  assert.equal(res.headers["x-t"], placeholder);
  let text = head.toString();
  socket.on("data", (chunk) => (text += String(chunk)));
  await until("the first bytes are there", () => text === "first");
  socket.write("hello");
  const masked = placeholder.slice(0, value.length);
  await until("the answer is there", () => text === `firstecho hello ${masked}`);
  socket.destroy();
  await until("the host is closed", () => proxy.connections.every(({ destroyed }) => destroyed));
  const refused = upgrade("/no");
  refused.end();
  const [answer] = (await once(refused, "response")) as [http.IncomingMessage];
  assert.equal(answer.statusCode, 401);
  answer.resume();
});

test("connections to the host are used again, and a request on one that just closed is repeated", async (t) => {
  let requests = 0;
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      // The third request finds a connection that looks open and is not.
      if (++requests === 3) return void req.socket.destroy();
      res.end(String(requests));
    },
  });
  const client = session(t, proxy);
  const ask = async (method = "GET"): Promise<string> => {
    const stream = client.request({ ":path": "/", ":method": method });
    let text = "";
    for await (const chunk of stream) text += String(chunk);
    return text;
  };
  assert.equal(await ask(), "1");
  assert.equal(await ask(), "2");
  assert.equal(proxy.connections.length, 1);
  assert.equal(await ask(), "4");
  assert.equal(proxy.connections.length, 2);
});

test("the body of an HTTP/2 request cannot become a second request", async (t) => {
  const urls: (string | undefined)[] = [];
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      urls.push(req.url);
      req.resume();
      req.once("end", () => res.end());
    },
  });
  const hidden = `GET /hidden HTTP/1.1\r\nHost: other.example.com\r\n\r\n`;
  for (const headers of [
    { ":method": "GET" },
    { ":method": "DELETE" },
    { ":method": "POST", "content-length": "0" },
    { ":method": "POST", "content-length": "5" },
  ]) {
    const stream = session(t, proxy).request({ ":path": "/seen", ...headers }, { endStream: false });
    stream.on("error", () => undefined);
    stream.end(hidden);
    stream.resume();
    await until("the stream is over", () => stream.closed);
  }
  await request(proxy, "/last");
  assert.deepEqual([...new Set(urls)].sort(), ["/last", "/seen"]);
});

test("a machine above its rate waits, and one that used up its bytes is cut off", async (t) => {
  const proxy = await intercepted(t, { handler: (_, res) => void sendMegabytes(res, 2) });
  const waits: (() => void)[] = [];
  proxy.charge = (direction) =>
    direction === "in" ? new Promise((resolve) => waits.push(resolve)) : undefined;
  const reply = request(proxy, "/");
  await until("the response waits", () => waits.length === 1);
  waits.shift()?.();
  await until("the body waits", () => waits.length === 1);
  const ticking = setInterval(() => waits.shift()?.(), 1);
  assert.equal((await reply).status, 200);
  clearInterval(ticking);
  let left = 100_000;
  proxy.charge = (_, count) => {
    left -= count;
    if (left < 0) throw new AppError("forbidden", "The sandbox has used up its bytes");
    return undefined;
  };
  await assert.rejects(request(proxy, "/"));
  assert.match(proxy.log.at(-1)?.reason ?? "", /used up its bytes/);
  const refused = await request(proxy, "/");
  assert.equal(refused.status, 403);
});

test("an HTTP/1.1 request whose length can be read in two ways is refused", async (t) => {
  const urls: (string | undefined)[] = [];
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      urls.push(req.url);
      req.resume();
      res.end();
    },
  });
  const hidden = "GET /hidden HTTP/1.1\r\nHost: other.example.com\r\n\r\n";
  for (const lines of [
    "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: 5\r\nContent-Length: 0\r\n\r\n",
    "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: +5\r\n\r\n",
    "X: y\r\n folded\r\n\r\n",
    "X: y\nZ: w\r\n\r\n",
  ]) {
    const socket = await guestSocket(proxy, { ALPNProtocols: ["http/1.1"] });
    let text = "";
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => (text += String(chunk)));
    socket.write(`POST /seen HTTP/1.1\r\nHost: ${host}\r\n${lines}${hidden}`);
    await until("the guest has an answer", () => socket.destroyed || /^HTTP\/1\.1 \d/.test(text));
    socket.destroy();
  }
  await request(proxy, "/last");
  assert.ok(!urls.includes("/hidden"), urls.join());
});
