import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import type net from "node:net";
import { test } from "node:test";
import { until } from "@forkd/test-support";
import { deferred, open as openRequest, send } from "../support.ts";
import {
  hostOf,
  httpGuest,
  portToken,
  rawGuest,
  sendRaw,
  startPorts,
  withToken,
  type PortsTest,
} from "./support.ts";

const publicly = (server: PortsTest, port: number) => {
  server.open.set(port, { public: true, token: portToken });
  return { host: hostOf(port) };
};

test("requests use connections to the guest again", async (t) => {
  const server = await startPorts(t);
  const guest = await httpGuest(t, (request, response) =>
    request.resume().on("end", () => response.end("ok")),
  );
  const headers = publicly(server, guest.port);
  const warnings: Error[] = [];
  const warn = (warning: Error) => void warnings.push(warning);
  process.on("warning", warn);
  t.after(() => process.off("warning", warn));
  for (let nth = 0; nth < 30; nth++) assert.equal((await send(server.url, "/", { headers })).text, "ok");
  assert.deepEqual(warnings, [], "no listeners are left on a connection");
  const posted = await send(server.url, "/", { method: "POST", headers, body: "x" });
  assert.equal(posted.text, "ok");
  assert.equal(guest.connections(), 1);
  server.replaceMachine();
  assert.equal((await send(server.url, "/", { headers })).text, "ok");
  assert.equal(guest.connections(), 2, "another machine has other connections");
});

test("a request whose connection the guest has closed meanwhile is repeated on a new one", async (t) => {
  const server = await startPorts(t);
  // Says that it keeps the connection and resets it at the next request.
  const guest = await rawGuest(t, (socket) => {
    let nth = 0;
    socket.on("data", () => {
      if (nth++ > 0) return void socket.resetAndDestroy();
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
  });
  const headers = publicly(server, guest.port);
  for (let nth = 0; nth < 3; nth++) assert.equal((await send(server.url, "/", { headers })).text, "ok");
  const posted = await send(server.url, "/", { method: "POST", headers, body: "x" });
  assert.deepEqual([posted.status, posted.json?.code], [502, "port_failed"], "a body is not sent twice");
});

test("a connection that the guest closed while it was idle is not used again", async (t) => {
  const server = await startPorts(t);
  const ended = deferred<void>();
  const guest = await rawGuest(t, (socket) => {
    socket.once("data", () => {
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
      setImmediate(() => socket.end());
    });
    socket.once("close", () => ended.resolve());
  });
  const headers = publicly(server, guest.port);
  assert.equal((await send(server.url, "/", { headers })).text, "ok");
  await ended.promise;
  const posted = await send(server.url, "/", { method: "POST", headers, body: "x" });
  assert.equal(posted.text, "ok");
});

test("bytes that no request asked for are not the answer to the next request", async (t) => {
  const server = await startPorts(t);
  const guest = await rawGuest(t, (socket) => {
    socket.on("data", () =>
      socket.write(
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ntrueHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse",
      ),
    );
  });
  const headers = publicly(server, guest.port);
  for (let nth = 0; nth < 3; nth++) assert.equal((await send(server.url, "/", { headers })).text, "true");
});

test("an event stream is passed on as it happens, and ends in the guest when the client goes", async (t) => {
  const server = await startPorts(t);
  const gone = deferred<void>();
  const started = deferred<http.ServerResponse>();
  const { port } = await httpGuest(t, (_, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    response.once("close", () => gone.resolve());
    started.resolve(response);
  });
  const request = openRequest(server.url, "/", { headers: publicly(server, port) });
  request.end();
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  assert.equal(response.headers["content-type"], "text/event-stream");
  const source = await started.promise;
  for (const text of ["data: 1\n\n", "data: 2\n\n"]) {
    source.write(text);
    const [chunk] = (await once(response, "data")) as [Buffer];
    assert.equal(chunk.toString(), text);
  }
  assert.equal(server.traffic.active, 1);
  request.destroy();
  await gone.promise;
  await until("the call has ended", () => server.traffic.active === 0);
});

test("bodies pass in both directions at the same time, only as fast as the reader reads", async (t) => {
  const server = await startPorts(t);
  const size = 64 * 1024 * 1024;
  let sent = 0;
  const { port } = await httpGuest(t, (request, response) => {
    request.resume();
    const piece = Buffer.alloc(65_536, 7);
    const more = () => {
      while (sent < size) {
        sent += piece.length;
        if (!response.write(piece)) return void response.once("drain", more);
      }
      response.end();
    };
    more();
  });
  const request = openRequest(server.url, "/", { method: "POST", headers: publicly(server, port) });
  request.write("begin");
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.pause();
  let before = -1;
  await until("nothing moves", () => {
    const isStill = before === sent;
    before = sent;
    return isStill;
  });
  assert.ok(
    sent < size / 2,
    `${sent} of ${size} bytes were taken from the guest although the client does not read`,
  );
  let got = 0;
  response.on("data", (chunk: Buffer) => (got += chunk.length)).resume();
  request.end("end");
  await once(response, "end");
  assert.equal(got, size);
});

test("chunks and trailers pass in both directions", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, (request, response) => {
    request.resume().on("end", () => {
      response.writeHead(200, { trailer: "x-sum" });
      response.write("body");
      response.addTrailers({ "x-sum": String(request.trailers["x-count"]) });
      response.end();
    });
  });
  const request = openRequest(server.url, "/", {
    method: "PUT",
    headers: { ...publicly(server, port), trailer: "x-count", "transfer-encoding": "chunked" },
  });
  request.write("a");
  request.addTrailers({ "x-count": "42" });
  request.end();
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.resume();
  await once(response, "end");
  assert.equal(response.trailers["x-sum"], "42");
});

test("100 Continue comes from the guest", async (t) => {
  const server = await startPorts(t);
  const asked: string[] = [];
  const { port } = await httpGuest(
    t,
    (request, response) => request.resume().on("end", () => response.end("taken")),
    (guest) =>
      guest.on("checkContinue", (request: http.IncomingMessage, response: http.ServerResponse) => {
        asked.push(request.url ?? "");
        if (request.url === "/no") return void response.writeHead(417).end("no");
        response.writeContinue();
        guest.emit("request", request, response);
      }),
  );
  const headers = { ...publicly(server, port), expect: "100-continue", "content-length": "4" };
  const request = openRequest(server.url, "/yes", { method: "POST", headers });
  request.flushHeaders();
  await once(request, "continue");
  request.end("body");
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  assert.equal(response.statusCode, 200);
  response.resume();
  const refused = openRequest(server.url, "/no", { method: "POST", headers });
  refused.on("continue", () => assert.fail("the guest has not said it"));
  refused.on("error", () => undefined);
  refused.flushHeaders();
  const [answer] = (await once(refused, "response")) as [http.IncomingMessage];
  assert.equal(answer.statusCode, 417);
  refused.destroy();
  assert.deepEqual(asked, ["/yes", "/no"]);
});

test("the daemon says 100 Continue itself where the guest does not, and to callers of the API", async (t) => {
  const server = await startPorts(t);
  const { port } = await rawGuest(t, (socket) => {
    let text = "";
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      if (text.endsWith("body")) socket.end("HTTP/1.0 200 OK\r\n\r\ntaken");
    });
  });
  for (const headers of [publicly(server, port), { ...withToken, host: "localhost" }]) {
    const request = openRequest(server.url, "/v1/keys", {
      method: "POST",
      headers: { ...headers, expect: "100-continue", "content-length": "4" },
    });
    request.flushHeaders();
    await once(request, "continue");
    request.end("body");
    const [response] = (await once(request, "response")) as [http.IncomingMessage];
    assert.equal(response.statusCode, "authorization" in headers ? 400 : 200);
    response.resume();
  }
});

test("HEAD, 204 and 304 have no body and leave the connection usable", async (t) => {
  const server = await startPorts(t);
  const guest = await httpGuest(t, ({ url, method }, response) => {
    if (method === "HEAD") return void response.writeHead(200, { "content-length": "1000" }).end();
    response.writeHead(Number(url?.slice(1))).end();
  });
  const headers = publicly(server, guest.port);
  const head = await send(server.url, "/", { method: "HEAD", headers });
  assert.deepEqual([head.status, head.headers["content-length"], head.text], [200, "1000", ""]);
  for (const status of [204, 304])
    assert.equal((await send(server.url, `/${status}`, { headers })).status, status);
  assert.equal(guest.connections(), 1);
});

test("an answer that the guest breaks off is broken off for the client", async (t) => {
  const server = await startPorts(t);
  const { port } = await rawGuest(t, (socket) =>
    socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")),
  );
  const headers = publicly(server, port);
  await assert.rejects(send(server.url, "/", { headers }), /aborted|hang up|ECONNRESET/);
  await until("it is observed", () => server.observed.length === 1);
  assert.equal(server.observed[0]?.code, "port_failed");
  const before = await rawGuest(t, (socket) => socket.once("data", () => socket.destroy()));
  const answer = await send(server.url, "/", { headers: publicly(server, before.port) });
  assert.deepEqual([answer.status, answer.json.code], [502, "port_failed"]);
});

const endless = (socket: net.Socket) => {
  const more = () => {
    while (!socket.destroyed && socket.write(`X-${"y".repeat(1000)}: z\r\n`));
    if (!socket.destroyed) socket.once("drain", more);
  };
  socket.write("HTTP/1.1 200 OK\r\n");
  more();
};

for (const [what, say] of Object.entries<(socket: net.Socket) => void>({
  garbage: (socket) => socket.end("\0\x01\x02 not http at all\r\n\r\n"),
  "endless headers": endless,
  "one endless header": (socket) => void socket.write(`HTTP/1.1 200 OK\r\nX: ${"y".repeat(200_000)}`),
  "a length and chunks": (socket) =>
    socket.end("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
  "two lengths": (socket) =>
    socket.end("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
  "a bare line feed in a header": (socket) => socket.end("HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\rc\r\n\r\n"),
  "an unasked change of protocol": (socket) =>
    void socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
  "a status out of range": (socket) => socket.end("HTTP/1.1 9999 No\r\n\r\n"),
  "a status below 100": (socket) => socket.end("HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n"),
  "a negative length": (socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx"),
  nothing: (socket) => socket.end(),
})) {
  test(`a guest that answers with ${what} gets a 502, and the daemon serves on`, async (t) => {
    const server = await startPorts(t);
    const { port } = await rawGuest(t, (socket) => socket.once("data", () => say(socket)));
    const answer = await send(server.url, "/", { headers: publicly(server, port) });
    assert.deepEqual([answer.status, answer.json?.code], [502, "port_failed"]);
    const good = await httpGuest(t, (_, response) => response.end("ok"));
    assert.equal((await send(server.url, "/", { headers: publicly(server, good.port) })).text, "ok");
  });
}

test("headers that are for one hop do not pass, whatever the client lists in Connection", async (t) => {
  const server = await startPorts(t);
  const seen: string[] = [];
  const { port } = await rawGuest(t, (socket) =>
    socket.on("data", (chunk: Buffer) => {
      seen.push(chunk.toString("latin1"));
      if (chunk.toString("latin1").endsWith("hello"))
        socket.write(
          "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nX-End: 2\r\nContent-Length: 2\r\n\r\nok",
        );
    }),
  );
  const { host } = publicly(server, port);
  const answer = await sendRaw(
    server.url,
    `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close, content-length, host, x-drop\r\nX-Drop: 1\r\nX-Keep: ä\r\n` +
      "TE: trailers\r\nProxy-Authorization: Basic x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n" +
      "X-Forkd-Anything: 1\r\nContent-Length: 5\r\n\r\nhello",
  );
  assert.match(answer, /^HTTP\/1.1 200 OK\r\n/);
  assert.match(answer, /x-end: 2/i);
  assert.doesNotMatch(answer, /x-hop/i);
  const request = seen.join("");
  assert.match(request, /content-length: 5\r\n/i);
  assert.match(request, /x-forwarded-for: 127\.0\.0\.1\r\n/i);
  assert.doesNotMatch(request, /x-drop|\nte:|proxy-|6\.6\.6\.6|x-forkd/i);
});

test("smuggling attempts of a client end at the daemon", async (t) => {
  const server = await startPorts(t);
  const paths: string[] = [];
  const { port } = await httpGuest(t, (request, response) => {
    paths.push(`${request.method} ${request.url}`);
    request.resume().on("end", () => response.end("ok"));
  });
  const { host } = publicly(server, port);
  const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
  const tries = [
    `POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n${smuggled}`,
    `POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n0\r\n\r\n`,
    `POST / HTTP/1.1\r\nHost: ${host}\r\nTransfer-Encoding: identity\r\nConnection: close\r\n\r\n${smuggled}`,
    `POST / HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 1\r\nContent-Length: 40\r\nConnection: close\r\n\r\n${smuggled}`,
  ];
  for (const text of tries)
    assert.match(await sendRaw(server.url, text), /^HTTP\/1.1 400 /, text.slice(0, 150));
  assert.deepEqual(paths, []);
});

test("a guest that answers before it has read the body ends the request", async (t) => {
  const server = await startPorts(t);
  const { port } = await rawGuest(t, (socket) =>
    socket.once("data", () => socket.write("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")),
  );
  const request = openRequest(server.url, "/", { method: "POST", headers: publicly(server, port) });
  request.on("error", () => undefined);
  request.write("begin");
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  assert.equal(response.statusCode, 413);
  response.resume();
  await once(response, "end");
  request.destroy();
  await until("the call has ended", () => server.traffic.active === 0);
});

test("a request with an Upgrade that the daemon does not take is served with its body, as before", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, (request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => (body += chunk.toString()));
    request.on("end", () => response.end(`${request.headers.upgrade} ${body}`));
  });
  const upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
  const last = `GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
  const key = JSON.stringify({ name: "java" });
  const api = await sendRaw(
    server.socket,
    `POST /v1/keys HTTP/1.1\r\nHost: localhost\r\n${upgrade}Content-Length: ${key.length}\r\n\r\n${key}${last}`,
  );
  assert.match(api, /^HTTP\/1.1 201 [^]*HTTP\/1.1 200 /);
  const passed = await sendRaw(
    server.url,
    `POST / HTTP/1.1\r\nHost: ${publicly(server, port).host}\r\n${upgrade}Content-Length: 4\r\n\r\nbody${last}`,
  );
  assert.match(passed, /^HTTP\/1.1 200 [^]*undefined body/);
});
