import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "@forkd/base";
import { isAllowed, parseHost } from "../../src/access/browser-guard.ts";
import { send, startServer, token } from "../support.ts";

const handlers = {
  health: () => ({ ok: true }),
  listSnapshots: async () => [],
  cleanup: async () => ({ removed: [], dry_run: true }),
};
const bearer = { authorization: `Bearer ${token}` };
const allowedHosts = ["forkd.example", "ui.example:3000", "*.svc.cluster.local"];
const start = () => startServer(handlers, nullLogger(), { gate: { allowedHosts } });

test("allowed_hosts admits names with any port, names with one port, and suffixes", async () => {
  await using server = await start();
  const statusOf = async (host: string) => (await send(server.url, "/healthz", { headers: { host } })).status;
  for (const host of [
    "forkd.example",
    "FORKD.example:1",
    "ui.example:3000",
    "a.svc.cluster.local:8889",
    "127.0.0.1",
    "127.5.5.5",
    "localhost:1",
  ])
    assert.equal(await statusOf(host), 200, host);
  for (const host of [
    "ui.example",
    "ui.example:3001",
    "svc.cluster.local.evil.example",
    "svc.cluster.local",
    "forkd.example.evil",
    "10.0.0.1",
    "127.0.0.1.evil.example",
    "0.0.0.0",
  ])
    assert.equal(await statusOf(host), 403, host);
  assert.equal(await statusOf("evil@forkd.example"), 400);
});

test("a Host that is an address is accepted only on the address of the connection", async () => {
  await using server = await startServer(handlers, nullLogger(), { server: { listen: "0.0.0.0:0" } });
  assert.match(server.url, /^http:\/\/127\.0\.0\.1:/);
  const { port } = new URL(server.url);
  const at = (address: string, host: string) =>
    send(`http://${address}:${port}`, "/healthz", { headers: { host } });
  assert.equal((await at("127.0.0.2", "127.0.0.2")).status, 200);
  assert.equal((await at("127.0.0.1", "192.0.2.7")).status, 403);
});

test("Host and Origin are checked before the token, on every path", async () => {
  await using server = await start();
  for (const path of ["/healthz", "/v1/snapshots", "/openapi.json", "/nothing"]) {
    const host = await send(server.url, path, { headers: { host: "evil.example", ...bearer } });
    assert.deepEqual([host.status, host.json.code], [403, "forbidden"], path);
    const origin = await send(server.url, path, { headers: { origin: "https://evil.example", ...bearer } });
    assert.deepEqual([origin.status, origin.json.code], [403, "forbidden"], path);
  }
  const both = await send(server.socket, "/v1/snapshots", {
    headers: { host: "evil.example", origin: "https://evil.example" },
  });
  assert.equal(both.status, 200);
});

test("an Origin of allowed_hosts may call, others may not", async () => {
  await using server = await start();
  const statusOf = async (origin: string) =>
    (await send(server.url, "/v1/snapshots", { headers: { origin, ...bearer } })).status;
  for (const origin of ["https://forkd.example", "http://ui.example:3000", server.url])
    assert.equal(await statusOf(origin), 200, origin);
  for (const origin of [
    "http://ui.example",
    "null",
    "file://",
    "ftp://forkd.example",
    "forkd.example",
    "http://localhost:3000",
    server.url.replace("http", "https"),
  ])
    assert.equal(await statusOf(origin), 403, origin);
});

test("requests that a browser says come from another site are refused without an Origin too", async () => {
  await using server = await start();
  const statusOf = async (site: string) =>
    (await send(server.url, "/v1/snapshots", { headers: { "sec-fetch-site": site, ...bearer } })).status;
  assert.equal(await statusOf("cross-site"), 403);
  assert.equal(await statusOf("same-site"), 403);
  assert.equal(await statusOf("same-origin"), 200);
  assert.equal(await statusOf("none"), 200);
});

test("a body that a page may send without a preflight request is refused from a browser, and accepted from a program", async () => {
  await using server = await start();
  const clean = (headers: Record<string, string>) =>
    send(server.url, "/v1/cleanup", { method: "POST", body: "{}", headers: { ...bearer, ...headers } });
  const form = { "content-type": "application/x-www-form-urlencoded" };
  assert.equal((await clean(form)).status, 200);
  assert.equal((await clean({})).status, 200);
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    const answer = await clean({ "content-type": type, origin: server.url });
    assert.deepEqual([answer.status, answer.json.code], [400, "invalid_request"]);
    assert.match(answer.json.error, /Content-Type must be application\/json/);
  }
  assert.equal((await clean({ ...form, "sec-fetch-site": "same-origin" })).status, 400);
  const json = { "content-type": "application/json; charset=utf-8", origin: server.url };
  assert.equal((await clean(json)).status, 200);
});

test("answers do not let other sites read them, and are not sniffed", async () => {
  await using server = await start();
  const preflight = await send(server.url, "/v1/snapshots", {
    method: "OPTIONS",
    headers: { origin: "https://forkd.example", "access-control-request-method": "GET" },
  });
  assert.equal(preflight.status, 401);
  const answer = await send(server.url, "/v1/snapshots", {
    headers: { origin: "https://forkd.example", ...bearer },
  });
  assert.equal(answer.headers["access-control-allow-origin"], undefined);
  assert.equal(answer.headers["x-content-type-options"], "nosniff");
});

test("parseHost() and isAllowed() take apart names, ports and IPv6 addresses", () => {
  assert.deepEqual(parseHost("[::1]:80"), { name: "::1", port: "80" });
  assert.deepEqual(parseHost("A.example"), { name: "a.example", port: "" });
  for (const bad of ["", "a b", "a/b", "a:b", "a@b", "a:1:2"]) assert.equal(parseHost(bad), undefined, bad);
  assert.equal(isAllowed({ name: "x.y", port: "" }, ["*.y"]), true);
  assert.equal(isAllowed({ name: "xy", port: "" }, ["*.y"]), false);
});
