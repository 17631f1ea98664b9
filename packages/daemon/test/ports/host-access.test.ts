import assert from "node:assert/strict";
import { test } from "node:test";
import { open as openRequest, sandboxId, send, token } from "../support.ts";
import { hostOf, httpGuest, portToken, sendRaw, startPorts, withToken } from "./support.ts";

const echo = (t: Parameters<typeof httpGuest>[0]) =>
  httpGuest(t, (request, response) => {
    const body: Buffer[] = [];
    request.on("data", (chunk: Buffer) => body.push(chunk));
    request.on("end", () =>
      response.end(
        JSON.stringify({
          method: request.method,
          url: request.url,
          headers: request.headers,
          body: Buffer.concat(body).toString(),
        }),
      ),
    );
  });

type Seen = { method: string; url: string; headers: Record<string, string>; body: string };
const seen = ({ text }: { text: string }) => JSON.parse(text) as Seen;

test("a public port answers under its host name without a token, on TCP and on the unix socket", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: true, token: portToken });
  for (const where of [server.url, server.socket]) {
    const answer = await send(where, "/a//b?x=1&y=%20&&z", { headers: { host: hostOf(port) } });
    assert.equal(answer.status, 200);
    const request = seen(answer);
    assert.equal(request.url, "/a//b?x=1&y=%20&&z");
    assert.equal(request.headers["host"], hostOf(port));
    assert.equal(request.headers["x-forwarded-host"], hostOf(port));
    assert.equal(request.headers["x-forwarded-proto"], "http");
    assert.equal(request.headers["x-forwarded-for"], where === server.url ? "127.0.0.1" : undefined);
  }
});

test("a port that is not public needs its token: as a header, as a cookie or once in the address", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: false, token: portToken });
  const host = hostOf(port);
  const refused = await send(server.url, "/", { headers: { host } });
  assert.equal(refused.status, 401);
  assert.equal(refused.json.code, "unauthenticated");
  assert.equal(refused.json.remedy.action, "give_port_token");
  const asPerson = await send(server.url, "/", { headers: { host, accept: "text/html,*/*" } });
  assert.match(asPerson.headers["content-type"] ?? "", /^text\/plain/);
  assert.match(asPerson.text, /has no token/);
  for (const wrong of ["", "x", portToken.slice(1), `${portToken}x`]) {
    const answer = await send(server.url, "/", { headers: { host, "x-forkd-port-token": wrong } });
    assert.equal(answer.status, 401, wrong);
  }

  const byHeader = await send(server.url, "/", { headers: { host, "x-forkd-port-token": portToken } });
  assert.equal(byHeader.status, 200);
  assert.equal(seen(byHeader).headers["x-forkd-port-token"], undefined);

  const visit = await send(server.url, `/page?a=1&forkd_token=${portToken}&b=2`, { headers: { host } });
  assert.equal(visit.status, 303);
  assert.equal(visit.headers.location, "/page?a=1&b=2");
  const [cookie = ""] = visit.headers["set-cookie"] ?? [];
  assert.match(cookie, /^forkd_port_token=\S+; Path=\/; HttpOnly; SameSite=Lax$/);
  const byCookie = await send(server.url, "/page", {
    headers: { host, cookie: `mine=1; ${cookie.split(";")[0]}; other=2` },
  });
  assert.equal(byCookie.status, 200);
  assert.equal(seen(byCookie).headers["cookie"], "mine=1; other=2");

  const posted = await send(server.url, `/?forkd_token=${portToken}`, {
    method: "POST",
    headers: { host },
    body: "x",
  });
  assert.equal(posted.status, 200);
  assert.equal(seen(posted).url, "/");
});

test("the redirect after a visit with the token never leads to another host", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: false, token: portToken });
  for (const path of ["//evil.example/x", "/\\evil.example", "///evil.example"]) {
    const answer = await sendRaw(
      server.url,
      `GET ${path}?forkd_token=${portToken} HTTP/1.1\r\nHost: ${hostOf(port)}\r\nConnection: close\r\n\r\n`,
    );
    const location = /^location: (.*)\r$/im.exec(answer)?.[1] ?? "";
    assert.equal(new URL(location, "http://here.test/").host, "here.test", `${path} → ${location}`);
  }
});

test("behind a proxy with TLS on this machine the cookie is secure", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: false, token: portToken });
  const headers = { host: hostOf(port), "x-forwarded-proto": "https", "x-forwarded-for": "1.2.3.4" };
  const visit = await send(server.url, `/?forkd_token=${portToken}`, { headers });
  assert.match(String(visit.headers["set-cookie"]), /; Secure$/);
  const answer = await send(server.url, "/", { headers: { ...headers, "x-forkd-port-token": portToken } });
  assert.equal(seen(answer).headers["x-forwarded-proto"], "https");
  assert.equal(seen(answer).headers["x-forwarded-for"], "127.0.0.1");
});

test("the guest gets its own Authorization header, but never a token or key of the daemon", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: true, token: portToken });
  const { key } = await server.keys.create({ name: "ci", scope: "run" });
  const host = hostOf(port);
  const own = await send(server.url, "/", { headers: { host, authorization: "Bearer of-the-guest" } });
  assert.equal(seen(own).headers["authorization"], "Bearer of-the-guest");
  for (const secret of [token, key]) {
    const answer = await send(server.url, "/", { headers: { host, authorization: `Bearer ${secret}` } });
    assert.equal(answer.status, 200);
    assert.doesNotMatch(answer.text, new RegExp(secret));
  }
});

test("the guest gets its own X-API-KEY header, but never a token or key of the daemon in the form of E2B", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: true, token: portToken });
  const host = hostOf(port);
  const get = async (key: string) => {
    const answer = await send(server.url, "/", { headers: { host, "x-api-key": key } });
    return seen(answer).headers["x-api-key"];
  };
  assert.equal(await get("of-the-guest"), "of-the-guest");
  assert.equal(await get(token), undefined);
  assert.equal(await get(`e2b_${Buffer.from(token).toString("hex")}`), undefined);
});

test("only exact host names lead to a port, and no such name ever leads to the API", async (t) => {
  const server = await startPorts(t, {
    domains: ["localhost", "ports.example.com"],
    gate: { allowedHosts: ["*.localhost", "*.example.com"] },
  });
  const { port } = await echo(t);
  server.open.set(port, { public: true, token: portToken });
  const good = [
    hostOf(port),
    `${hostOf(port)}:1234`,
    `${hostOf(port)}.`,
    hostOf(port).toUpperCase(),
    hostOf(port, sandboxId, "ports.example.com"),
  ];
  for (const host of good) {
    const answer = await send(server.url, "/v1/sandboxes", { headers: { host, ...withToken } });
    assert.equal(answer.status, 200, host);
    assert.equal(seen(answer).url, "/v1/sandboxes", host);
  }
  const bad = [
    hostOf(port, sandboxId, "example.com"),
    hostOf(port, sandboxId, "evil.example"),
    hostOf(port, sandboxId, "localhost.evil.example"),
    `x.${hostOf(port)}`,
    hostOf(0),
    hostOf(65_536),
    `0${hostOf(port)}`,
    hostOf(port, "sb-0123"),
    hostOf(port, `${sandboxId}0`),
    `${port}-${sandboxId}`,
  ];
  for (const where of [server.url, server.socket]) {
    for (const host of bad) {
      const answer = await send(where, "/v1/sandboxes", { headers: { host, ...withToken } });
      assert.ok([404, 429].includes(answer.status), `${host}: ${answer.status}`);
    }
  }
  const twice = await sendRaw(
    server.socket,
    `GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nHost: ${hostOf(port)}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(twice, /^HTTP\/1.1 400 /);
  const other = await sendRaw(
    server.socket,
    `GET http://localhost/v1/sandboxes HTTP/1.1\r\nHost: ${hostOf(port)}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(other, /^HTTP\/1.1 400 /);
  const absolute = await sendRaw(
    server.socket,
    `GET http://${hostOf(port)}/v1/sandboxes HTTP/1.1\r\nHost: ${hostOf(port)}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(absolute, /^HTTP\/1.1 200 /);
  assert.match(absolute, /"url":"\/v1\/sandboxes"/);
});

test("a page of a guest cannot call the API, even if allowed_hosts has its domain and no token is needed", async (t) => {
  const server = await startPorts(t, { gate: { token: undefined, allowedHosts: ["*.localhost"] } });
  const daemon = new URL(server.url).host;
  const page = `http://${hostOf(3000)}:${new URL(server.url).port}`;
  const tries: Record<string, string>[] = [
    { origin: page },
    { origin: page.toUpperCase() },
    { origin: "null" },
    { "sec-fetch-site": "same-site" },
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" },
  ];
  for (const headers of tries) {
    for (const host of [daemon, "localhost", "x.localhost"]) {
      const answer = await send(server.url, "/v1/sandboxes", { headers: { host, ...headers } });
      assert.equal(answer.status, 403, JSON.stringify({ host, ...headers }));
    }
  }
  const own = await send(server.url, "/v1/sandboxes", { headers: { host: daemon, origin: server.url } });
  assert.equal(own.status, 200);
});

test("a cookie counts for pages of the same sandbox only", async (t) => {
  const server = await startPorts(t);
  const { port } = await echo(t);
  server.open.set(port, { public: false, token: portToken });
  const base = { host: hostOf(port), cookie: `forkd_port_token=${portToken}` };
  const status = async (headers: Record<string, string>) =>
    (await send(server.url, "/", { headers: { ...base, ...headers } })).status;
  assert.equal(await status({ origin: `http://${hostOf(port)}:8889`, "sec-fetch-site": "same-origin" }), 200);
  assert.equal(await status({ origin: `http://${hostOf(8000)}:8889`, "sec-fetch-site": "same-site" }), 200);
  assert.equal(await status({ "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }), 200);
  assert.equal(await status({ "sec-fetch-site": "none" }), 200);
  const other = hostOf(port, "sb-ffffffffffffffffffffffff");
  assert.equal(await status({ origin: `http://${other}:8889`, "sec-fetch-site": "same-site" }), 401);
  assert.equal(await status({ origin: "https://evil.example" }), 401);
  assert.equal(await status({ "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors" }), 401);
});

test("a guest sets cookies for its own host name only, and not the daemon's", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, (_, response) =>
    response
      .setHeader("set-cookie", ["a=1; Domain=example.com; Path=/", "forkd_port_token=evil; Path=/", "b=2"])
      .end(),
  );
  server.open.set(port, { public: true, token: portToken });
  const answer = await send(server.url, "/", { headers: { host: hostOf(port) } });
  assert.deepEqual(answer.headers["set-cookie"], ["a=1; Path=/", "b=2"]);
});

test("unknown sandboxes, closed ports and refused connections have their own answers", async (t) => {
  const server = await startPorts(t);
  const unknown = await send(server.url, "/", {
    headers: { host: hostOf(3000, "sb-ffffffffffffffffffffffff") },
  });
  assert.deepEqual([unknown.status, unknown.json.code], [404, "sandbox_not_found"]);
  assert.equal(unknown.json.details.similar, undefined);
  const closed = await send(server.url, "/", { headers: { host: hostOf(3000) } });
  assert.deepEqual([closed.status, closed.json.code], [404, "port_not_open"]);
  server.open.set(1, { public: true, token: portToken });
  const refused = await send(server.url, "/", { headers: { host: hostOf(1) } });
  assert.deepEqual([refused.status, refused.json.code], [502, "port_refused"]);
});

test("closing a port ends the requests to its host name", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, (_, response) => response.write("first"));
  server.open.set(port, { public: true, token: portToken });
  const request = openRequest(server.url, "/", { headers: { host: hostOf(port) } });
  request.end();
  await new Promise<void>((resolve) => {
    request.once("response", (response) => {
      response.once("data", () => server.cut(port));
      response.once("error", () => resolve());
    });
  });
});

test("the audit log has a line for each port that a connection is used for", async (t) => {
  const server = await startPorts(t);
  const ports = [];
  for (const _ of [1, 2]) {
    const { port } = await httpGuest(t, (__, response) => response.end("ok"));
    server.open.set(port, { public: true, token: portToken });
    ports.push(port);
  }
  const [one = 0, other = 0] = ports;
  const post = (port: number) => `POST /${port} HTTP/1.1\r\nHost: ${hostOf(port)}\r\nContent-Length: 0\r\n`;
  await sendRaw(server.url, `${post(one)}\r\n${post(one)}\r\n${post(other)}Connection: close\r\n\r\n`);
  const paths = (await server.audited()).map(({ path }) => path);
  assert.deepEqual(paths, [`/${one}`, `/${other}`]);
});

test("the audit log has one line per connection, and one for each refusal", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, (_, response) => response.writeHead(404).end("none"));
  server.open.set(port, { public: true, token: portToken });
  const get = `GET /secret?forkd_token=${portToken} HTTP/1.1\r\nHost: ${hostOf(port)}\r\n`;
  await sendRaw(server.url, `${get}\r\n${get}\r\n${get}Connection: close\r\n\r\n`);
  server.open.clear();
  await send(server.url, "/", { headers: { host: hostOf(port) } });
  const lines = (await server.audited()).map(({ route, path, status, code, objects }) => ({
    route,
    path,
    status,
    code,
    objects,
  }));
  const objects = { sandboxes: [sandboxId] };
  assert.deepEqual(lines, [
    { route: "portHost", path: "/secret", status: 404, code: undefined, objects },
    { route: "portHost", path: "/", status: 404, code: "port_not_open", objects },
  ]);
  assert.equal(server.observed.length, 4);
});
