/** Ports of guests below a path of the API. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sandboxId, send } from "../support.ts";
import { hostOf, httpGuest, sendRaw, startPorts, upgradeTo, withToken } from "./support.ts";

test("a request by the path needs the scope run and gives the guest neither token nor cookies", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, ({ url, headers }, response) => {
    response.setHeader("set-cookie", "a=1");
    response.setHeader("location", url?.startsWith("/away") ? "//evil.example/" : "/next");
    response.setHeader("service-worker-allowed", "/");
    response.end(JSON.stringify({ url, headers }));
  });
  const base = `/v1/sandboxes/${sandboxId}/ports/${port}/proxy`;
  assert.equal((await send(server.url, `${base}/`)).status, 401);
  const { key } = await server.keys.create({ name: "reader", scope: "read" });
  const reader = await send(server.url, `${base}/`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(reader.status, 403);
  const headers = { ...withToken, cookie: "ambient=1" };
  for (const [path, expected] of [
    ["", "/"],
    ["/", "/"],
    ["?q=1", "/?q=1"],
    ["/a/b?forkd_token=kept", "/a/b?forkd_token=kept"],
  ] as const) {
    const answer = await send(server.url, base + path, { headers });
    const seen = JSON.parse(answer.text) as { url: string; headers: Record<string, string> };
    assert.equal(seen.url, expected);
    assert.equal(seen.headers["authorization"], undefined);
    assert.equal(seen.headers["cookie"], undefined);
    assert.equal(seen.headers["host"], `localhost:${port}`);
    assert.equal(seen.headers["x-forwarded-prefix"], base);
    assert.equal(answer.headers["location"], `${base}/next`);
    assert.equal(answer.headers["set-cookie"], undefined);
    assert.equal(answer.headers["service-worker-allowed"], undefined);
    assert.equal(answer.headers["content-security-policy"], "sandbox");
  }
  const away = await send(server.url, `${base}/away`, { headers });
  assert.equal(away.headers["location"], "//evil.example/");
  const [line] = (await server.audited()).slice(-1);
  assert.deepEqual([line?.["route"], line?.["principal"]], ["proxyPort", "token"]);
});

test("dots in a proxied path reach the guest as they are, and never the API", async (t) => {
  const server = await startPorts(t);
  const { port } = await httpGuest(t, ({ url }, response) => response.end(url));
  const base = `/v1/sandboxes/${sandboxId}/ports/${port}/proxy`;
  for (const rest of [
    "/../../../../../keys",
    "/%2e%2e/%2e%2e/x",
    "/..%2f..%2fkeys",
    "/.\\..\\x",
    "//x",
    "/a/./b",
  ]) {
    const answer = await sendRaw(
      server.socket,
      `GET ${base}${rest} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
    );
    assert.ok(answer.startsWith("HTTP/1.1 200"), answer);
    assert.ok(answer.includes(rest), `${rest}: ${answer}`);
  }
  const other = await sendRaw(
    server.socket,
    `GET /v1/sandboxes/${sandboxId}/ports/99999/proxy/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
  );
  assert.match(other, /^HTTP\/1.1 404 /);
});

test("a WebSocket of a page of a guest to another sandbox by the path is refused", async (t) => {
  const server = await startPorts(t, { gate: { token: undefined } });
  const { port } = await httpGuest(t, (_, response) => response.end());
  const { status } = await upgradeTo(server.url, {
    path: `/v1/sandboxes/${sandboxId}/ports/${port}/proxy/`,
    headers: { upgrade: "websocket", origin: `http://${hostOf(1)}:8889` },
  });
  assert.equal(status, 403);
});
