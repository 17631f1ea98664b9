/** The HTTP transport without a daemon: keys, sessions and their limits. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppError } from "@forkd/contract/wire";
import { until } from "@forkd/test-support";
import type { HttpOptions } from "../src/http/serve.ts";
import { serveHttp } from "../src/index.ts";

const key = "a-key-with-many-characters";
type Server = AsyncDisposable & { url: string };

async function serve(options: Partial<HttpOptions> = {}): Promise<Server> {
  const end = new AbortController();
  let ready: (url: string) => void = () => undefined;
  const listening = new Promise<string>((resolve) => (ready = resolve));
  const done = serveHttp({
    connect: () => Promise.reject(new AppError("daemon_unreachable", "Cannot reach the daemon")),
    version: "1",
    log: () => undefined,
    signal: end.signal,
    killOnExit: false,
    host: "127.0.0.1",
    port: 0,
    keys: { kind: "own", key },
    allowHosts: [],
    onReady: ready,
    ...options,
  });
  const url = await Promise.race([listening, done.then(() => assert.fail("It ended"))]);
  const stop = async () => {
    end.abort();
    await done;
  };
  return { url, [Symbol.asyncDispose]: stop };
}

async function open(url: string, given = key): Promise<Client & AsyncDisposable> {
  const client = new Client({ name: "test", version: "1" });
  const requestInit = { headers: { authorization: `Bearer ${given}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.close() });
}

const post = (url: string, body: string, headers: Record<string, string> = {}) =>
  fetch(url, {
    method: "POST",
    body,
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      authorization: `Bearer ${key}`,
      ...headers,
    },
  });

test("a client with the key lists tools without a daemon; others are refused", async () => {
  await using server = await serve();
  await using client = await open(server.url);
  assert.equal((await client.listTools()).tools.length, 24);
  await assert.rejects(open(server.url, `${key}x`));
});

test("malformed requests get an answer that says what is wrong", async () => {
  await using server = await serve();
  assert.equal((await post(server.url, "{")).status, 400);
  assert.equal((await post(server.url, "[]")).status, 400);
  assert.equal((await post(server.url.replace("/mcp", "/other"), "{}")).status, 404);
  assert.equal((await post(server.url, JSON.stringify({ x: "x".repeat(9_000_000) }))).status, 413);
  const list = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" });
  assert.equal((await post(server.url, list)).status, 400);
  assert.equal((await post(server.url, list, { "mcp-session-id": "none" })).status, 404);
});

test("a new session takes the place of the longest unused one", async () => {
  await using server = await serve({ sessions: { most: 2 } });
  const initialize = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "x", version: "1" } },
  });
  const list = JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/list" });
  const ids: string[] = [];
  for (let count = 0; count < 3; count++) {
    const response = await post(server.url, initialize);
    await response.text();
    ids.push(response.headers.get("mcp-session-id") ?? "");
  }
  const statuses = [];
  for (const id of ids) {
    const response = await post(server.url, list, { "mcp-session-id": id });
    await response.text();
    statuses.push(response.status);
  }
  assert.deepEqual(statuses, [404, 200, 200]);
});

test("an idle session ends", async () => {
  await using server = await serve({ sessions: { idleMs: 30 } });
  const initialize = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "x", version: "1" } },
  });
  const begun = await post(server.url, initialize);
  await begun.text();
  const id = begun.headers.get("mcp-session-id") ?? "";
  await until("the session is gone", async () => {
    // A request would make the session used again, so only one with another session looks.
    await new Promise((resolve) => setTimeout(resolve, 200));
    const response = await post(server.url, JSON.stringify({ jsonrpc: "2.0", id: 2, method: "ping" }), {
      "mcp-session-id": id,
    });
    await response.text();
    return response.status === 404;
  });
});

test("serveHttp() refuses to listen on a network without TLS, and a key that can be guessed", async () => {
  await assert.rejects(serve({ host: "0.0.0.0" }), { code: "invalid_request" });
  await assert.rejects(serve({ keys: { kind: "own", key: "short" } }), { code: "invalid_request" });
});
