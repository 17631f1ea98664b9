import assert from "node:assert/strict";
import http from "node:http";
import type net from "node:net";
import test, { type TestContext } from "node:test";
import { fixture, type Fixture } from "../support/fixture.ts";
import { listening, once, patient, received } from "../support/sockets.ts";

/** An HTTP server that answers with what it was asked. */
async function web(t: TestContext, onRequest?: http.RequestListener): Promise<number> {
  const server = http.createServer(
    onRequest ??
      ((request, response) => {
        const chunks: Buffer[] = [];
        request.on("data", (chunk: Buffer) => chunks.push(chunk));
        request.on("end", () => {
          const { method, url, headers, trailers } = request;
          response.end(
            JSON.stringify({ method, url, headers, trailers, body: Buffer.concat(chunks).toString() }),
          );
        });
      }),
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as net.AddressInfo).port;
}

const records = Object.fromEntries(
  ["a.example", "b.example", "evil.example"].map((name) => [name, ["127.0.0.1"]]),
);

async function webFixture(
  t: TestContext,
  onRequest?: http.RequestListener,
): Promise<Fixture & { port: number }> {
  const port = await web(t, onRequest);
  const rules = [`allow a.example:${port}`, `allow b.example:${port}`, `allow 127.0.0.1:${port}`];
  return { ...(await fixture(t, { records, rules })), port };
}

type Reply = {
  status: number;
  headers: http.IncomingHttpHeaders;
  body: string;
  trailers: NodeJS.Dict<string>;
};

/** A request over a socket of the guest. */
async function request(
  socket: net.Socket,
  options: http.RequestOptions,
  body?: (request: http.ClientRequest) => void,
): Promise<Reply> {
  const work = new Promise<Reply>((resolve, reject) => {
    const outgoing = http.request({ ...options, createConnection: () => socket }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("error", reject);
      response.on("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
          trailers: response.trailers,
        }),
      );
    });
    outgoing.on("error", reject);
    if (body) body(outgoing);
    else outgoing.end();
  });
  return patient(work, "a response");
}

const statusOf = (text: string): number[] =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3})/g)].map(([, status]) => Number(status));

test("a request reaches its host with its headers, without those of the connection", async (t) => {
  const { guest, port, logged } = await webFixture(t);
  const { status, body } = await request(await guest.dial("a.example", port), {
    path: "/x?y=1",
    headers: {
      Host: `A.example:${port}`,
      "X-Own": "1",
      Connection: "X-Hop, close",
      "X-Hop": "1",
      "Proxy-Authorization": "no",
    },
  });
  const seen = JSON.parse(body) as { url: string; headers: Record<string, string> };
  assert.equal(status, 200);
  assert.deepEqual(
    [seen.url, seen.headers["host"], seen.headers["x-own"]],
    ["/x?y=1", `A.example:${port}`, "1"],
  );
  assert.deepEqual([seen.headers["x-hop"], seen.headers["proxy-authorization"]], [undefined, undefined]);
  const entry = await logged(({ event }) => event === "request");
  assert.deepEqual([entry.name, entry.method, entry.status, entry.via], ["a.example", "GET", 200, "http"]);
});

test("each request of a connection is checked: a second one to a forbidden host is refused", async (t) => {
  const { guest, port, logged } = await webFixture(t);
  const socket = await guest.dial("a.example", port);
  const get = (host: string): string => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  socket.write(get("a.example") + get("b.example") + get("evil.example") + get("a.example"));
  const text = await received(socket);
  assert.deepEqual(statusOf(text), [200, 200, 403]);
  assert.match(text, /add the rule "allow evil\.example:\d+"/);
  await logged(({ event, name, via }) => event === "denied" && name === "evil.example" && via === "http");
});

test("Host headers that are not plain are refused", async (t) => {
  const { guest, port } = await webFixture(t);
  const hosts = [
    "user@a.example",
    "a.example:",
    "a.example:1",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "2130706433",
    "127.1",
    "a.example/",
    "a_.example\\",
    "a..example",
    "[::1",
    "*",
    "",
    "evil.example",
    "169.254.169.254",
    "[::ffff:169.254.169.254]",
    "localhost",
  ];
  for (const host of hosts) {
    const socket = await guest.dial("a.example", port);
    socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    const [status] = statusOf(await received(socket));
    assert.ok(status === 400 || status === 403, `${host}: ${status}`);
  }
  for (const host of ["A.EXAMPLE", "a.example.", `a.example:${port}`]) {
    const socket = await guest.dial("a.example", port);
    socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    assert.deepEqual(statusOf(await received(socket)), [200], host);
  }
});

test("requests that could be read in two ways are refused", async (t) => {
  let requests = 0;
  const { guest, port } = await webFixture(t, (_, response) => {
    requests++;
    response.end();
  });
  const bad = [
    "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a.example\r\n evil: 1\r\n\r\n",
    "FOO / HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "get / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
  ];
  for (const text of bad) {
    const socket = await guest.dial("a.example", port);
    socket.write(text);
    const statuses = statusOf(await received(socket));
    assert.ok(
      statuses.length <= 1 && statuses.every((status) => status === 400),
      `${JSON.stringify(text)}: ${statuses.join()}`,
    );
  }
  assert.equal(requests, 0);
});

test("a dial to any address with a permitted Host goes to the host itself", async (t) => {
  const { guest, port } = await webFixture(t);
  const { status } = await request(await guest.dial("192.0.2.99", port), { headers: { Host: "a.example" } });
  assert.equal(status, 200);
  const refused = await request(await guest.dial("192.0.2.99", port), { headers: { Host: "evil.example" } });
  assert.equal(refused.status, 403);
});

test("the host of a synthetic address and the Host header must both be allowed", async (t) => {
  const { guest, port, rules } = await webFixture(t);
  const fronted = await request(await guest.dial("a.example", port), { headers: { Host: "evil.example" } });
  assert.equal(fronted.status, 403);
  const socket = await guest.dial("a.example", port);
  await rules([`allow b.example:${port}`, `allow 127.0.0.1:${port}`]);
  socket.write("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
  assert.equal(await received(socket), "");
});

test("a redirect is passed on, and the request that follows it is refused", async (t) => {
  const { guest, port } = await webFixture(t, (_, response) => {
    response.writeHead(302, { Location: "http://169.254.169.254/latest/meta-data/" }).end();
  });
  const { status, headers } = await request(await guest.dial("a.example", port), {
    headers: { Host: "a.example" },
  });
  assert.deepEqual([status, headers.location], [302, "http://169.254.169.254/latest/meta-data/"]);
  await guest.refused("169.254.169.254", 80);
});

test("bodies pass in chunks with trailers, and 100 Continue is asked of the host", async (t) => {
  const { guest, port } = await webFixture(t, (incoming, response) => {
    response.writeHead(200, { Trailer: "X-Sum" });
    let length = 0;
    incoming.on("data", (chunk: Buffer) => (length += chunk.length));
    incoming.on("end", () => {
      response.write(`${length} `);
      response.addTrailers({ "X-Sum": String(incoming.trailers["x-check"]) });
      response.end("end");
    });
  });
  const reply = await request(
    await guest.dial("a.example", port),
    {
      method: "POST",
      headers: {
        Host: "a.example",
        Expect: "100-continue",
        "Transfer-Encoding": "chunked",
        Trailer: "X-Check",
      },
    },
    (outgoing) => {
      outgoing.flushHeaders();
      outgoing.on("continue", () => {
        outgoing.write("x".repeat(300_000));
        outgoing.addTrailers({ "X-Check": "42" });
        outgoing.end("y");
      });
    },
  );
  assert.deepEqual([reply.status, reply.body, reply.trailers["x-sum"]], [200, "300001 end", "42"]);
});

test("large bodies pass in both directions", async (t) => {
  const size = 8 << 20;
  const { guest, port } = await webFixture(t, (incoming, response) => incoming.pipe(response));
  const socket = await guest.dial("b.example", port);
  const { body } = await request(
    socket,
    { method: "PUT", headers: { Host: "b.example", "Content-Length": size } },
    (outgoing) => outgoing.end(Buffer.alloc(size, "z")),
  );
  assert.equal(body.length, size);
});

test("the methods without a body, HTTP/1.0 and HEAD keep their form", async (t) => {
  const { guest, port } = await webFixture(t);
  const post = await request(await guest.dial("a.example", port), {
    method: "POST",
    headers: { Host: "a.example", "Content-Length": 0 },
  });
  assert.equal((JSON.parse(post.body) as { headers: Record<string, string> }).headers["content-length"], "0");
  const head = await request(await guest.dial("a.example", port), {
    method: "HEAD",
    headers: { Host: "a.example" },
  });
  assert.deepEqual([head.status, head.body], [200, ""]);
  const old = await guest.dial("a.example", port);
  old.write("GET /old HTTP/1.0\r\n\r\n");
  const text = await received(old);
  assert.match(text, /"host":"a\.example"/);
  assert.doesNotMatch(text, /chunked/);
});

test("an explicit proxy serves absolute URLs and CONNECT with the same checks", async (t) => {
  const { guest, port, logged } = await webFixture(t);
  const absolute = await request(await guest.dial("10.0.2.2", 3128), {
    path: `http://a.example:${port}/p?q`,
    headers: { Host: "whatever" },
  });
  assert.equal(absolute.status, 200);
  assert.match(absolute.body, /"url":"\/p\?q"/);
  const forbidden = await request(await guest.dial("10.0.2.2", 3128), {
    path: `http://evil.example:${port}/`,
    headers: { Host: "a.example" },
  });
  assert.equal(forbidden.status, 403);

  const targets = [
    `evil.example:${port}`,
    "169.254.169.254:80",
    "[::ffff:169.254.169.254]:80",
    "127.0.0.1:22",
    "0x7f.1:80",
    "a.example",
    "a.example:0",
    "user@a.example:80",
    ":80",
    "localhost:80",
  ];
  for (const target of targets) {
    const socket = await guest.dial("10.0.2.2", 3128);
    socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
    const [status] = statusOf(await received(socket));
    assert.ok(status === 400 || status === 403, `${target}: ${status}`);
  }
  await logged(({ method, address }) => method === "CONNECT" && address === "169.254.169.254");

  const tunnel = await guest.dial("10.0.2.2", 3128);
  tunnel.write(`CONNECT a.example:${port} HTTP/1.1\r\n\r\n`);
  const [answer] = (await once(tunnel, "data")) as [Buffer];
  assert.deepEqual(statusOf(answer.toString()), [200]);
  tunnel.write("GET / HTTP/1.1\r\nHost: a.example\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  assert.deepEqual(statusOf(await received(tunnel)), [200, 403]);

  const nested = await guest.dial("10.0.2.2", 3128);
  nested.write(`CONNECT a.example:${port} HTTP/1.1\r\n\r\n`);
  await once(nested, "data");
  nested.write(`CONNECT b.example:${port} HTTP/1.1\r\n\r\n`);
  assert.deepEqual(statusOf(await received(nested)), [400]);
  const origin = await request(await guest.dial("10.0.2.2", 80), { headers: { Host: "a.example" } });
  assert.equal(origin.status, 400);
});

test("WebSockets pass; another change of protocol is ignored", async (t) => {
  const port = await web(t, (_, response) => response.end("plain"));
  const socketPort = await listening(t, (socket) => {
    socket.once("data", (chunk: Buffer) => {
      if (!/Upgrade: websocket/.test(chunk.toString()))
        socket.end("HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n");
      else
        socket.write(
          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello",
        );
      socket.on("data", (next) => socket.end(next));
    });
  });
  const rules = [port, socketPort].flatMap((each) => [`allow a.example:${each}`, `allow 127.0.0.1:${each}`]);
  const { guest } = await fixture(t, { records, rules });
  const upgrade = (host: string, protocol: string): string =>
    `GET /chat HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: ${protocol}\r\n\r\n`;
  const socket = await guest.dial("a.example", socketPort);
  socket.write(upgrade("a.example", "websocket"));
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    if (!text.includes("hello") && (text + chunk.toString()).includes("hello")) socket.write("frame");
    text += chunk.toString();
  });
  await received(socket);
  assert.match(text, /^HTTP\/1\.1 101 [^]*\r\n\r\nhelloframe$/);

  const forbidden = await guest.dial("a.example", socketPort);
  forbidden.write(upgrade("evil.example", "websocket"));
  assert.deepEqual(statusOf(await received(forbidden)), [403]);

  const plain = await guest.dial("a.example", port);
  plain.write(
    upgrade("a.example", "h2c").replace(
      "Connection: Upgrade",
      "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMA",
    ),
  );
  const [chunk] = (await once(plain, "data")) as [Buffer];
  assert.match(chunk.toString(), /^HTTP\/1\.1 200 /);
  plain.destroy();
});

test("a host that cannot be reached is a 502, and a host that closes is seen as such", async (t) => {
  const port = await listening(t, (socket) => socket.once("data", () => socket.destroy()));
  const { guest } = await fixture(t, {
    records: { ...records, "gone.example": [] },
    rules: [`allow a.example:1,${port}`, `allow gone.example`, "allow 127.0.0.1"],
  });
  const closed = await request(await guest.dial("a.example", 1), { headers: { Host: "a.example" } });
  assert.equal(closed.status, 502);
  assert.match(closed.body, /ECONNREFUSED/);
  assert.equal(await guest.resolve("gone.example"), 3);
  const dropped = await request(await guest.dial("a.example", port), { headers: { Host: "a.example" } });
  assert.equal(dropped.status, 502);
});
