import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "@forkd/base";
import { AppError, openapi, routes, type Route } from "@forkd/contract";
import { post, sandboxId, send, startServer } from "../support.ts";

const removedPy = { removed: [{ tag: "py" }], freed_bytes: 4096, dry_run: false };

test("requestListener() passes checked input of path, query and body to the handler and returns its result", async () => {
  await using server = await startServer({
    removeSnapshot: (input) => {
      assert.deepEqual(input, { tag: "py", force: true });
      return removedPy;
    },
    fork: async (input) => {
      assert.equal(input.n, 3);
      return [{ index: 0, error: "no", code: "engine_failed", details: {} }];
    },
    interrupt: (input) => {
      assert.deepEqual(input, { id: sandboxId, language: "node" });
      return undefined;
    },
  });
  const removed = await send(server.socket, "/v1/snapshots/py?force=1", { method: "DELETE" });
  assert.equal(removed.status, 200);
  assert.deepEqual(removed.json, removedPy);
  const forked = await post(server.socket, "/v1/sandboxes", { snapshot_tag: "py", n: 3 });
  assert.equal(forked.status, 201);
  assert.equal(forked.json[0].code, "engine_failed");
  assert.equal(
    (await post(server.socket, `/v1/sandboxes/${sandboxId}/interrupt`, { language: "node" })).status,
    204,
  );
});

test("requestListener() takes an absent body as an empty object", async () => {
  await using server = await startServer({ ping: async () => ({ ok: true, round_trip_ms: 1 }) });
  const answer = await send(server.socket, `/v1/sandboxes/${sandboxId}/ping`, { method: "POST" });
  assert.deepEqual(answer.json, { ok: true, round_trip_ms: 1 });
});

test("requestListener() refuses invalid input and names each field and rule", async () => {
  await using server = await startServer({});
  const answer = await post(server.socket, "/v1/sandboxes", { snapshot_tag: "-", n: 0, speed: 9 });
  assert.equal(answer.status, 400);
  assert.equal(answer.json.code, "invalid_request");
  const issues: { path: string; message: string }[] = answer.json.details.issues;
  assert.deepEqual(issues.map((issue) => issue.path).sort(), ["n", "snapshot_tag", "speed"]);
  assert.match(answer.json.error, /n: must be 1 to 1000/);
  assert.equal(answer.json.request_id, answer.headers["x-request-id"]);
});

test("requestListener() refuses bodies that are not a JSON object", async () => {
  await using server = await startServer({});
  for (const body of ["{", "[]", "null", '"text"', Buffer.from([0x7b, 0xff, 0x7d])]) {
    const answer = await send(server.socket, "/v1/cleanup", { method: "POST", body });
    assert.equal(answer.status, 400, String(body));
    assert.equal(answer.json.code, "invalid_request");
  }
});

test("requestListener() refuses a query on a POST and a repeated parameter", async () => {
  await using server = await startServer({});
  const onPost = await send(server.socket, "/v1/cleanup?dry_run=true", { method: "POST" });
  assert.match(onPost.json.error, /dry_run: belongs in the JSON body/);
  const twice = await send(server.socket, "/v1/sandboxes?tag=a&tag=b");
  assert.match(twice.json.error, /tag: is given twice/);
});

test("requestListener() answers unknown paths with not_found and wrong methods with Allow", async () => {
  await using server = await startServer({});
  for (const path of ["/", "/v2/sandboxes", "/v1/sandboxes/", "/healthz/", "/v1/sandboxes/a/b/c"]) {
    const answer = await send(server.socket, path);
    assert.equal(answer.status, 404, path);
    assert.equal(answer.json.code, "not_found");
  }
  const answer = await send(server.socket, "/v1/sandboxes", { method: "PATCH" });
  assert.equal(answer.status, 405);
  assert.equal(answer.json.code, "method_not_allowed");
  assert.equal(answer.headers.allow, "DELETE, GET, POST");
  const head = await send(server.socket, `/v1/sandboxes/${sandboxId}/logs`, { method: "HEAD" });
  assert.equal(head.status, 405);
});

test("requestListener() answers HEAD of a JSON route without a body", async () => {
  await using server = await startServer({ health: () => ({ ok: true }) });
  const answer = await send(server.socket, "/healthz", { method: "HEAD" });
  assert.equal(answer.status, 200);
  assert.equal(answer.text, "");
});

test("requestListener() keeps a valid request id and replaces others", async () => {
  await using server = await startServer({ health: () => ({ ok: true }) });
  const kept = await send(server.socket, "/healthz", { headers: { "x-request-id": "abc-1.2_3" } });
  assert.equal(kept.headers["x-request-id"], "abc-1.2_3");
  const replaced = await send(server.socket, "/healthz", { headers: { "x-request-id": "a b;c" } });
  assert.match(String(replaced.headers["x-request-id"]), /^[0-9a-f-]{36}$/);
});

test("requestListener() turns errors into their status and body", async () => {
  await using server = await startServer({
    getSandbox: () => {
      throw new AppError("sandbox_not_found", "No sandbox", { details: { id: "x" } });
    },
    listSnapshots: () => Promise.reject(new TypeError("bug")),
  });
  const absent = await send(server.socket, `/v1/sandboxes/${sandboxId}`);
  assert.equal(absent.status, 404);
  assert.equal(absent.json.code, "sandbox_not_found");
  assert.deepEqual(absent.json.details, { id: "x" });
  const bug = await send(server.socket, "/v1/snapshots");
  assert.equal(bug.status, 500);
  assert.equal(bug.json.code, "internal");
});

test("requestListener() writes one log record per request", async () => {
  const records: Record<string, unknown>[] = [];
  const log = createLogger({
    level: "info",
    destination: { write: (line: string) => void records.push(JSON.parse(line) as Record<string, unknown>) },
  });
  await using server = await startServer(
    { listSnapshots: () => Promise.reject(new TypeError("bug")), status: async () => ({}) as never },
    log,
  );
  await send(server.socket, "/v1/status");
  await send(server.socket, "/v1/snapshots");
  await send(server.socket, "/nowhere");
  assert.deepEqual(
    records.map(({ event, level, route, status, outcome }) => ({ event, level, route, status, outcome })),
    [
      { event: "http.request", level: "info", route: "status", status: 200, outcome: "ok" },
      { event: "http.request", level: "error", route: "listSnapshots", status: 500, outcome: "failed" },
      { event: "http.request", level: "info", route: "none", status: 404, outcome: "failed" },
    ],
  );
});

test("requestListener() serves an OpenAPI document with every route", async () => {
  await using server = await startServer({});
  const answer = await send(server.socket, "/openapi.json");
  assert.deepEqual(answer.json, JSON.parse(JSON.stringify(openapi("1.2.3"))));
  for (const [name, route] of Object.entries<Route>(routes)) {
    assert.equal(answer.json.paths[route.path][route.method].operationId, name);
  }
});

test("requestListener() repeats a bounded part of a bad request, to the client and in the log", async () => {
  const written: string[] = [];
  const log = createLogger({ level: "info", destination: { write: (line) => void written.push(line) } });
  await using server = await startServer({}, log);
  const long = "x".repeat(1_000_000);
  const many = Object.fromEntries(Array.from({ length: 10_000 }, (_, index) => [`unknown-${index}`, 1]));
  for (const body of [{ [long]: 1 }, many, { env: { [long]: 1 } }]) {
    const { status, text } = await post(server.socket, "/v1/sandboxes", body);
    assert.equal(status, 400);
    assert.ok(text.length < 20_000, String(text.length));
  }
  assert.equal(written.length, 3);
  for (const line of written) assert.ok(line.length < 5000, String(line.length));
});
