import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type http from "node:http";
import http2 from "node:http2";
import https from "node:https";
import { join } from "node:path";
import { promisify } from "node:util";
import { test } from "node:test";
import { connect as tlsConnect, type TLSSocket } from "node:tls";
import { until } from "@forkd/test-support";
import {
  guestSocket,
  host,
  intercepted,
  otherPlaceholder,
  otherSecret,
  placeholder,
  request,
  secret,
  value,
  type Intercepted,
} from "../support/intercepted.ts";

/** Repeats what the host received, without the values that the filter would change. */
const describeRequest: http.RequestListener = (req, res) => {
  const { authorization, ...headers } = req.headers;
  res.setHeader("Content-Type", "application/json");
  res.end(
    JSON.stringify({
      isReal: authorization === `Bearer ${value}`,
      url: req.url,
      method: req.method,
      headers,
    }),
  );
};

const bearer = { authorization: `Bearer ${placeholder}` };

/** One HTTP/2 request. */
async function request2(
  proxy: Intercepted,
  headers: http2.OutgoingHttpHeaders,
  body?: Buffer,
): Promise<{ status: number; headers: http2.IncomingHttpHeaders; text: string }> {
  const client = http2.connect(`https://${host}`, {
    createConnection: () => proxyConnection(proxy),
  });
  try {
    const stream = client.request({ ":path": "/", ...headers }, { endStream: body === undefined });
    if (body) stream.end(body);
    const [answer] = (await once(stream, "response")) as [http2.IncomingHttpHeaders & { ":status"?: number }];
    const chunks: Buffer[] = [];
    for await (const chunk of stream) chunks.push(chunk as Buffer);
    return { status: answer[":status"] ?? 0, headers: answer, text: Buffer.concat(chunks).toString() };
  } finally {
    client.destroy();
  }
}

function proxyConnection(proxy: Intercepted): TLSSocket {
  return tlsConnect({
    host: "127.0.0.1",
    port: proxy.port,
    servername: host,
    ca: proxy.ca,
    ALPNProtocols: ["h2"],
  });
}

test("a value replaces its placeholder on the way to its host, and nothing logs it", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  const { status, text } = await request(proxy, "/v1/models?x=1", { headers: { ...bearer, "x-other": "y" } });
  assert.equal(status, 200);
  const seen = JSON.parse(text);
  assert.deepEqual([seen.isReal, seen.url, seen.method], [true, "/v1/models?x=1", "GET"]);
  assert.deepEqual([seen.headers.host, seen.headers["x-other"]], [host, "y"]);
  assert.equal(seen.headers["accept-encoding"], "identity");
  assert.deepEqual(proxy.log, [
    {
      protocol: "tcp",
      via: "intercepted",
      name: host,
      port: 443,
      method: "GET",
      event: "request",
      status: 200,
    },
  ]);
  assert.ok(!JSON.stringify(proxy.log).includes(value));
  assert.ok(proxy.bytes.out > 0 && proxy.bytes.in >= text.length);
});

test("HTTP/2 requests are sent on as HTTP/1.1", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  const { status, text } = await request2(proxy, {
    ":path": "/v1/chat",
    ...bearer,
    cookie: ["a=1", "b=2"],
    te: "trailers",
  });
  assert.equal(status, 200);
  const seen = JSON.parse(text);
  assert.deepEqual([seen.isReal, seen.url], [true, "/v1/chat"]);
  assert.deepEqual([seen.headers.cookie, seen.headers.te], ["a=1; b=2", undefined]);
});

test("ALPN: HTTP/2 if the guest offers it, otherwise HTTP/1.1; other protocols are refused", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  for (const [offer, expected] of [
    [["h2", "http/1.1"], "h2"],
    [["http/1.1"], "http/1.1"],
    [undefined, false],
  ] as const) {
    const socket = await guestSocket(proxy, offer ? { ALPNProtocols: [...offer] } : {});
    assert.equal(socket.alpnProtocol, expected);
    socket.destroy();
  }
  await assert.rejects(guestSocket(proxy, { ALPNProtocols: ["imap"] }));
});

test("a placeholder inside Basic credentials is replaced, and the credentials do not come back", async (t) => {
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      const token = req.headers.authorization?.slice(6) ?? "";
      const isReal = Buffer.from(token, "base64").toString() === `user:${value}`;
      res.setHeader("X-Echo", `Basic ${token}`);
      res.end(`${isReal} Basic ${token}`);
    },
  });
  const sent = Buffer.from(`user:${placeholder}`).toString("base64");
  const { headers, text } = await request(proxy, "/", { headers: { authorization: `Basic ${sent}` } });
  assert.match(text, /^true Basic /);
  const real = Buffer.from(`user:${value}`).toString("base64");
  assert.ok(!text.includes(real));
  assert.equal(headers["x-echo"], `Basic ${sent}`);
});

test("a misplaced placeholder is refused with 403 and logged, and the host outside sees nothing", async (t) => {
  let requests = 0;
  const proxy = await intercepted(t, {
    handler: (_, res) => {
      requests++;
      res.end();
    },
  });
  const basic = Buffer.from(`u:${otherPlaceholder}`).toString("base64");
  const unknown = `forkd-secret-${"0".repeat(32)}`;
  const cases: [string, Record<string, string>, RegExp][] = [
    ["/", { authorization: `Bearer ${otherPlaceholder}` }, /"OTHER" is not for the host "api.example.com"/],
    ["/", { "x-anything": `a ${otherPlaceholder} b` }, /"OTHER" is not for the host/],
    ["/", { authorization: `Basic ${basic}` }, /"OTHER" is not for the host/],
    ["/", { cookie: `t=${otherPlaceholder}` }, /"OTHER" is not for the host/],
    [`/?key=${otherPlaceholder}`, {}, /"OTHER" is not for the host/],
    [`/${otherPlaceholder.replace("-", "%2D")}/x`, {}, /"OTHER" is not for the host/],
    [
      "/",
      { "x-api-key": placeholder },
      /"OPENAI" is only for the header "authorization", not for "x-api-key"/,
    ],
    [`/?key=${placeholder}`, {}, /only for the header "authorization", not for the URL/],
    ["/", { authorization: `Bearer ${unknown}` }, /a secret that this sandbox does not have/],
  ];
  for (const [path, headers, message] of cases) {
    const before = proxy.log.length;
    const { status, text } = await request(proxy, path, { headers });
    assert.equal(status, 403, text);
    assert.match(text, message);
    const [entry] = proxy.log.slice(before);
    assert.equal(entry?.event, "denied");
    assert.match(entry?.reason ?? "", message);
    const second = await request2(proxy, { ":path": path, ...headers });
    assert.equal(second.status, 403);
  }
  assert.equal(requests, 0);
  for (const each of [secret, otherSecret]) assert.ok(!JSON.stringify(proxy.log).includes(each.value));
});

test("a machine that loses a secret can no longer use its placeholder, on the same connection", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  assert.equal((await request(proxy, "/", { headers: bearer, agent })).status, 200);
  proxy.secrets = [otherSecret];
  assert.equal((await request(proxy, "/", { headers: bearer, agent })).status, 403);
  assert.equal(proxy.log.length, 2);
});

test("a request for another host than its connection is refused with 421", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  for (const name of [
    "other.example.com",
    `${host}.evil.example`,
    "127.0.0.1",
    `${host}:8443`,
    `x@${host}`,
  ]) {
    const { status, text } = await request(proxy, "/", { headers: { host: name, ...bearer } });
    assert.equal(status, 421, text);
    assert.equal((await request2(proxy, { ":authority": name, ...bearer })).status, 421);
  }
  assert.equal((await request2(proxy, { host: "other.example.com", ...bearer })).status, 421);
  for (const name of [host.toUpperCase(), `${host}.`, `${host}:443`]) {
    const { text } = await request(proxy, "/", { headers: { host: name } });
    assert.equal(JSON.parse(text).headers.host, host);
  }
  const socket = await guestSocket(proxy, { ALPNProtocols: ["http/1.1"] });
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\nHost: other.example.com\r\n\r\n`);
  const [chunk] = (await once(socket, "data")) as [Buffer];
  assert.match(chunk.toString(), /^HTTP\/1\.1 4(?:00|21) /);
  socket.destroy();
});

test("TRACE, CONNECT and absolute targets are refused", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  assert.equal((await request(proxy, "/", { method: "TRACE", headers: bearer })).status, 405);
  assert.equal((await request2(proxy, { ":method": "TRACE", ...bearer })).status, 405);
  assert.equal((await request(proxy, `https://${host}/`, { headers: bearer })).status, 400);
});

test("a value that the host echoes reaches the guest as its placeholder", async (t) => {
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      const token = req.headers.authorization ?? "";
      const body = JSON.stringify({ token, again: token });
      res.writeHead(302, {
        "X-Token": token,
        Location: `/next?t=${encodeURIComponent(token.slice(7))}`,
        "Content-Length": Buffer.byteLength(body),
      });
      // Values are also found across the borders of chunks.
      for (const part of body.match(/.{1,7}/g) ?? []) res.write(part);
      res.end();
    },
  });
  for (const reply of [await request(proxy, "/", { headers: bearer }), await request2(proxy, bearer)]) {
    assert.equal(reply.status, 302);
    assert.equal(reply.headers["x-token"], `Bearer ${placeholder}`);
    assert.equal(reply.headers.location, `/next?t=${placeholder}`);
    assert.ok(!reply.text.includes(value));
    assert.equal(JSON.parse(reply.text).token, `Bearer ${placeholder.slice(0, value.length)}`);
  }
});

test("an unverified certificate of the host is a 502 with the reason, and no header is sent", async (t) => {
  for (const setup of [{ roots: "none" as const }, { certificateName: "wrong.example.com" }]) {
    const proxy = await intercepted(t, { handler: () => assert.fail("a request arrived"), ...setup });
    const { status, text } = await request(proxy, "/", { headers: bearer });
    assert.equal(status, 502);
    assert.match(text, /^forkd: Cannot verify the certificate of "api\.example\.com": /);
    assert.equal(proxy.log[0]?.event, "failed");
    assert.ok(!text.includes(value) && !JSON.stringify(proxy.log).includes(value));
  }
});

test("a host that cannot be reached or is not allowed is a 502 or 403 with the reason", async (t) => {
  const { AppError } = await import("@forkd/contract");
  for (const [code, status] of [
    ["engine_failed", 502],
    ["forbidden", 403],
  ] as const) {
    const proxy = await intercepted(t, {
      handler: describeRequest,
      connect: () => Promise.reject(new AppError(code, "The reason")),
    });
    const reply = await request(proxy, "/", { headers: bearer });
    assert.deepEqual([reply.status, reply.text], [status, "forkd: The reason\n"]);
    assert.equal((await request2(proxy, bearer)).status, status);
  }
});

test("a TLS hello whose name differs from the one that was checked is refused", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  const socket = await guestSocket(proxy, { servername: "other.example.com", rejectUnauthorized: false });
  await once(socket, "close");
  await until("the entry is there", () => proxy.log.length > 0);
  assert.match(proxy.log[0]?.reason ?? "", /names two different hosts/);
});

test("a guest that does not trust the CA is logged with a reason", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  await assert.rejects(guestSocket(proxy, { ca: [] }));
  await until("the entry is there", () => proxy.log.length > 0);
  assert.match(proxy.log[0]?.reason ?? "", /may have another trust store/);
});

test("a guest that does not finish its headers is cut off", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest, headersMs: 200 });
  const socket = await guestSocket(proxy, { ALPNProtocols: ["http/1.1"] });
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n`);
  socket.resume();
  await once(socket, "close");
});

test("headers that are too large are refused", async (t) => {
  const proxy = await intercepted(t, { handler: describeRequest });
  // The answer may be lost with the unread rest of the request.
  const reply = await request(proxy, "/", { headers: { "x-large": "x".repeat(70_000) } }).catch(
    () => undefined,
  );
  assert.ok(reply === undefined || reply.status === 431);
  await assert.rejects(request2(proxy, { "x-large": "x".repeat(70_000) }));
});

const hasProgram = async (name: string): Promise<boolean> =>
  promisify(execFile)(name, ["--version"]).then(
    () => true,
    () => false,
  );

test("curl uses a secret over HTTP/1.1 and HTTP/2", async (t) => {
  if (!(await hasProgram("curl"))) return t.skip("curl is not installed");
  const proxy = await intercepted(t, { handler: describeRequest });
  const bundle = join(proxy.directory, "bundle.pem");
  await writeFile(bundle, proxy.ca);
  for (const version of ["--http1.1", "--http2"]) {
    const { stdout } = await promisify(execFile)("curl", [
      ...["-sS", version, "--cacert", bundle, "--resolve", `${host}:${proxy.port}:127.0.0.1`],
      ...["-H", `Host: ${host}`, "-H", `Authorization: Bearer ${placeholder}`],
      ...["--max-time", "60", `https://${host}:${proxy.port}/curl`],
    ]);
    assert.deepEqual([JSON.parse(stdout).isReal, JSON.parse(stdout).url], [true, "/curl"]);
  }
});

test("Python uses a secret with the strict checks of its TLS", async (t) => {
  if (!(await hasProgram("python3"))) return t.skip("python3 is not installed");
  const proxy = await intercepted(t, { handler: describeRequest });
  const bundle = join(proxy.directory, "bundle.pem");
  await writeFile(bundle, proxy.ca);
  const program = `
import http.client, socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags |= getattr(ssl, "VERIFY_X509_STRICT", 0)
raw = socket.create_connection(("127.0.0.1", int(sys.argv[2])), timeout=60)
connection = http.client.HTTPSConnection("${host}", context=context)
connection.sock = context.wrap_socket(raw, server_hostname="${host}")
connection.request("POST", "/python", body=b"x" * 100000, headers={"Authorization": "Bearer ${placeholder}"})
print(connection.getresponse().read().decode())
`;
  const { stdout } = await promisify(execFile)("python3", ["-c", program, bundle, String(proxy.port)]);
  const seen = JSON.parse(stdout);
  assert.deepEqual([seen.isReal, seen.url, seen.headers["content-length"]], [true, "/python", "100000"]);
});

test("the gateway's target is reached over a verified connection, and its response is filtered", async (t) => {
  const proxy = await intercepted(t, {
    handler: (req, res) => {
      assert.equal(req.headers.authorization, `Bearer ${value}`);
      res.end(`${req.url} ${req.headers.host} ${req.headers.authorization}`);
    },
  });
  const { interceptor, context, secrets } = proxy;
  const result = interceptor.gateway("/OPENAI/v1/models?x=1", secrets);
  assert.ok(result && "target" in result);
  const { target } = result;
  const socket = await interceptor.connectTls(target.name, target.port, context);
  assert.ok(socket.authorized);
  assert.equal(socket.alpnProtocol, "http/1.1");
  const lines = [`GET ${target.path} HTTP/1.1`, "Connection: close"];
  for (let at = 0; at < target.headers.length; at += 2)
    lines.push(`${target.headers[at]}: ${target.headers[at + 1]}`);
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  const parts: Buffer[] = [];
  for await (const chunk of socket) parts.push(target.response.push(chunk as Buffer));
  parts.push(target.response.end());
  const text = Buffer.concat(parts).toString();
  assert.ok(text.includes(`/v1/models?x=1 ${host} Bearer ${placeholder.slice(0, value.length)}`), text);
});

test("rewriteRequest() lets clients of the gateway send a placeholder as their key, and no others", async (t) => {
  const { interceptor, secrets } = await intercepted(t, { handler: describeRequest });
  const raw = ["Authorization", `Bearer ${placeholder}`];
  assert.deepEqual(interceptor.rewriteRequest(raw, "secrets.internal", secrets), { headers: raw });
  assert.ok("refused" in interceptor.rewriteRequest(raw, host, secrets));
  assert.ok(interceptor.handlesTls(host, 443, secrets));
  assert.ok(!interceptor.handlesTls(host, 8443, secrets));
  assert.ok(!interceptor.handlesTls("unrelated.example.com", 443, secrets));
});

test("a machine has a bounded number of connections to hosts, and closed ones are not counted", async (t) => {
  const { interceptor, context } = await intercepted(t, { handler: describeRequest });
  const connect = () => interceptor.connectTls(host, 443, context);
  const open = await Promise.all(Array.from({ length: 256 }, connect));
  await assert.rejects(connect(), /256 connections/);
  open[0]?.destroy();
  await once(open[0] as TLSSocket, "close");
  for (const socket of [...open, await connect()]) socket.destroy();
});
