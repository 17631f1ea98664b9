import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { chmod, readFile, stat, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger, Scope } from "@forkd/base";
import { Forkd } from "@forkd/sdk";
import { nodeTransport } from "@forkd/sdk/node";
import { digestOf, KeyStore } from "../src/auth/key-store.ts";
import { loadConfig } from "../src/config.ts";
import { runDaemon } from "../src/run-daemon.ts";
import { deferred, open, post, sandboxId, send, startServer, temporaryDir, token } from "./support.ts";

const inOneHour = () => Math.floor(Date.now() / 1000) + 3600;
/** once() would reject with the "error" that a cut connection brings first. */
const closeOf = (response: IncomingMessage) =>
  new Promise<void>((resolve) => void response.once("close", () => resolve()));
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

test("a key is told once and kept as a digest only", async () => {
  await using server = await startServer({ listSnapshots: async () => [] });
  const made = await post(
    server.url,
    "/v1/keys",
    { name: "ci", expires_at_unix: inOneHour() },
    bearer(token),
  );
  assert.equal(made.status, 201);
  assert.equal(made.json.scope, "run");
  assert.match(made.json.key, /^fk_[A-Za-z0-9_-]{43}$/);
  const file = join(server.dir, "keys.json");
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  const text = await readFile(file, "utf8");
  assert.ok(!text.includes(made.json.key.slice(3)));
  assert.ok(text.includes(createHash("sha256").update(made.json.key).digest("hex")));
  const listed = await send(server.socket, "/v1/keys");
  assert.ok(!listed.text.includes(made.json.key.slice(3)) && !listed.text.includes("sha256"));
  assert.equal(listed.json[0].last_used_unix, undefined);
  assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer(made.json.key) })).status, 200);
  assert.equal(typeof (await send(server.socket, "/v1/keys")).json[0].last_used_unix, "number");
});

test("keys survive in the file, and the caller of an operation has their name and limits", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const store = await KeyStore.open(dir);
  const limits = { max_sandboxes: 3, max_memory_mib: 512 };
  const { key } = await store.create({ name: "ci", scope: "run", ...limits });
  const again = await KeyStore.open(dir);
  assert.equal(again.find(digestOf(key))?.name, "ci");
  assert.equal(again.find(digestOf(`${key}x`)), undefined);
  assert.deepEqual(again.list(), store.list());
  const callers: unknown[] = [];
  const doctor = (_: unknown, { caller }: { caller?: unknown }) => {
    callers.push(caller);
    return { ok: true, accelerator: "tcg" as const, checks: [] };
  };
  await using server = await startServer({ doctor }, nullLogger(), { gate: { keys: again } });
  for (const how of [key, token]) await send(server.url, "/v1/doctor", { headers: bearer(how) });
  await send(server.socket, "/v1/doctor");
  assert.deepEqual(callers, [
    { name: "ci", limits: { sandboxes: 3, memoryMib: 512 } },
    { name: "token" },
    { name: "local" },
  ]);
});

test("names are unique, not reserved and well formed; expiry is in the future", async () => {
  await using server = await startServer({});
  const create = (body: object) => post(server.socket, "/v1/keys", body);
  assert.equal((await create({ name: "ci" })).status, 201);
  assert.equal((await create({ name: "ci" })).json.code, "already_exists");
  for (const body of [
    { name: "local" },
    { name: "Token" },
    { name: "anonymous" },
    { name: "-x" },
    { name: "a b" },
    { name: "x", scope: "root" },
    { name: "x", expires_at_unix: 1 },
    { name: "x", max_sandboxes: 0 },
    { name: "x", max_memory_mib: -1 },
  ]) {
    const answer = await create(body);
    assert.deepEqual([answer.status, answer.json.code], [400, "invalid_request"], JSON.stringify(body));
  }
  assert.equal((await send(server.socket, "/v1/keys")).json.length, 1);
  const absent = await send(server.socket, "/v1/keys/nobody", { method: "DELETE" });
  assert.deepEqual([absent.status, absent.json.code], [404, "key_not_found"]);
});

test("many keys made at the same time are all kept", async () => {
  await using server = await startServer({});
  const names = Array.from({ length: 20 }, (_, index) => `k${index}`);
  const made = await Promise.all(names.map((name) => post(server.socket, "/v1/keys", { name })));
  assert.ok(made.every(({ status }) => status === 201));
  assert.equal((await KeyStore.open(server.dir)).list().length, 20);
});

test("an expired key is refused with the reason", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const text = "fk_some-key-that-has-expired";
  const record = {
    name: "old",
    scope: "admin",
    sha256: digestOf(text).toString("hex"),
    created_at_unix: 1,
    expires_at_unix: 1_700_000_000,
  };
  await writeFile(join(dir, "keys.json"), JSON.stringify({ version: 1, keys: [record] }));
  const keys = await KeyStore.open(dir);
  await using server = await startServer({}, nullLogger(), { gate: { keys } });
  const answer = await send(server.url, "/v1/status", { headers: bearer(text) });
  assert.deepEqual([answer.status, answer.json.code], [401, "unauthenticated"]);
  assert.match(answer.json.error, /key "old" expired at 2023-11-14T22:13:20/);
  assert.equal(keys.list()[0]?.expired, true);
});

test("removing a key takes effect at once and cuts off what it has open", { timeout: 60_000 }, async () => {
  const aborted = deferred();
  await using server = await startServer({
    attachExec: async (_, { signal }) =>
      (async function* () {
        yield { type: "started", exec_id: 1, pid: 1 } as const;
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
        aborted.resolve();
      })(),
    listSnapshots: async () => [],
  });
  const { key } = await server.keys.create({ name: "ci", scope: "run" });
  const other = await server.keys.create({ name: "other", scope: "run" });
  const path = `/v1/sandboxes/${sandboxId}/execs/1/stream`;
  const openStream = async (text: string) => {
    const request = open(server.url, path, { headers: bearer(text) });
    request.on("error", () => undefined);
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.on("error", () => undefined);
    await once(response, "data");
    return { request, response };
  };
  const cut = await openStream(key);
  const kept = await openStream(other.key);
  const closed = closeOf(cut.response);
  assert.equal((await send(server.socket, "/v1/keys/ci", { method: "DELETE" })).status, 204);
  await Promise.all([closed, aborted.promise]);
  assert.equal(cut.response.complete, false);
  assert.equal(kept.response.closed, false);
  assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer(key) })).status, 401);
  assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer(other.key) })).status, 200);
  assert.deepEqual(
    (await KeyStore.open(server.dir)).list().map(({ name }) => name),
    ["other"],
  );
  kept.request.destroy();
});

test("a key can remove itself and is told so", async () => {
  await using server = await startServer({});
  const { key } = await server.keys.create({ name: "self", scope: "admin" });
  const remove = () => send(server.url, "/v1/keys/self", { method: "DELETE", headers: bearer(key) });
  assert.equal((await remove()).status, 204);
  assert.equal((await remove()).status, 401);
});

test("there are at most 1000 keys", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const record = (index: number) => ({
    name: `k${index}`,
    scope: "read",
    sha256: digestOf(`k${index}`).toString("hex"),
    created_at_unix: 1,
  });
  const keys = Array.from({ length: 1000 }, (_, index) => record(index));
  await writeFile(join(dir, "keys.json"), JSON.stringify({ version: 1, keys }));
  const store = await KeyStore.open(dir);
  assert.equal(store.find(digestOf("k777"))?.name, "k777");
  await assert.rejects(store.create({ name: "one-more", scope: "read" }), { code: "capacity_exhausted" });
  await store.remove("k0");
  assert.match((await store.create({ name: "one-more", scope: "read" })).key, /^fk_/);
});

test("a stream ends when its key expires", { timeout: 120_000 }, async () => {
  await using server = await startServer({
    attachExec: async (_, { signal }) =>
      (async function* () {
        yield { type: "started", exec_id: 1, pid: 1 } as const;
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
      })(),
  });
  for (const seconds of [2, 10, 40]) {
    const expires = Math.floor(Date.now() / 1000) + seconds;
    const name = `brief-${seconds}`;
    const { key } = await server.keys.create({ name, scope: "run", expires_at_unix: expires });
    const request = open(server.url, `/v1/sandboxes/${sandboxId}/execs/1/stream`, { headers: bearer(key) });
    request.on("error", () => undefined);
    request.end();
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.on("error", () => undefined);
    response.resume();
    await closeOf(response);
    // On a host that is very slow the key may be gone before it was used.
    if (response.statusCode === 401 && seconds < 40) continue;
    assert.deepEqual([response.statusCode, response.complete], [200, false]);
    assert.ok(Date.now() >= expires * 1000);
    return;
  }
});

test("a damaged keys.json keeps the daemon from starting and is left as it is", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const file = join(dir, "keys.json");
  const config = await loadConfig({ data_dir: dir, runtime_dir: join(dir, "run"), listen: "off" }, {});
  const twice = { name: "a", scope: "run", sha256: "0".repeat(64), created_at_unix: 1 };
  for (const text of [
    "",
    "{",
    "[]",
    '{"version":2,"keys":[]}',
    '{"version":1,"keys":[{"name":"a"}]}',
    JSON.stringify({ version: 1, keys: [twice, twice] }),
    JSON.stringify({ version: 1, keys: [{ ...twice, scope: "root" }] }),
  ]) {
    await writeFile(file, text);
    const run = runDaemon({ config, log: nullLogger(), version: "1", open: () => assert.fail("opened") });
    await assert.rejects(run, (error: Error & { code: string }) => {
      assert.equal(error.code, "host_not_ready");
      assert.ok(error.message.includes(file), error.message);
      assert.match(error.message, /restore it from a backup, or remove it/);
      return true;
    });
    assert.equal(await readFile(file, "utf8"), text);
  }
});

test("KeyStore.open() makes the file private again", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await (await KeyStore.open(dir)).create({ name: "a", scope: "read" });
  await chmod(join(dir, "keys.json"), 0o644);
  await KeyStore.open(dir);
  assert.equal((await stat(join(dir, "keys.json"))).mode & 0o777, 0o600);
});

test("the SDK makes, lists and removes keys, and uses one", async () => {
  await using server = await startServer({ listSnapshots: async () => [] });
  const forkd = new Forkd({ transport: nodeTransport({ socket: server.socket }) });
  const expiresAt = new Date(Date.now() + 60_000);
  const made = await forkd.keys.create("ci", { scope: "read", expiresAt, maxSandboxes: 2, maxMemoryMib: 64 });
  assert.deepEqual(
    [made.scope, made.max_sandboxes, made.max_memory_mib, made.expires_at_unix],
    ["read", 2, 64, Math.floor(expiresAt.getTime() / 1000)],
  );
  const caller = new Forkd({ transport: nodeTransport({ url: server.url, token: made.key }) });
  assert.deepEqual(await caller.snapshots.list(), []);
  await assert.rejects(caller.keys.list(), { code: "forbidden" });
  assert.deepEqual(
    (await forkd.keys.list()).map(({ name }) => name),
    ["ci"],
  );
  await forkd.keys.remove("ci");
  await assert.rejects(caller.snapshots.list(), { code: "unauthenticated" });
});
