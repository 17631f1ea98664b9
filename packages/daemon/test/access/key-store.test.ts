import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmod, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger, Scope } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { Forkd } from "@forkd/sdk";
import { nodeTransport } from "@forkd/sdk/node";
import { digestOf, KeyStore } from "../../src/access/key-store.ts";
import { loadConfig } from "../../src/settings/load.ts";
import { runDaemon } from "../../src/daemon.ts";
import { post, send, startServer, temporaryDir, token } from "../support.ts";

const bearer = (text: string) => ({ authorization: `Bearer ${text}` });

const inOneHour = () => Math.floor(Date.now() / 1000) + 3600;

test("a key is shown once and kept only as a digest", async () => {
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

test("keys are kept in the file, and the caller of an operation has their name and limits", async () => {
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

test("a key can remove itself and gets an answer", async () => {
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
    await assert.rejects(run, (error: unknown) => {
      assert.ok(error instanceof AppError);
      assert.equal(error.code, "host_not_ready");
      assert.ok(error.message.includes(file), error.message);
      assert.equal(error.remedy?.action, "advice");
      assert.match(error.remedy.text, /Restore the file from a backup, or remove it/);
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
    [made.scope, made.maxSandboxes, made.maxMemoryMib, made.expiresAt],
    ["read", 2, 64, new Date(Math.floor(expiresAt.getTime() / 1000) * 1000)],
  );
  const caller = new Forkd({ transport: nodeTransport({ url: server.url, token: made.key }) });
  assert.deepEqual(await caller.snapshots.list().all(), []);
  await assert.rejects(caller.keys.list(), { code: "forbidden" });
  assert.deepEqual(
    (await forkd.keys.list()).map(({ name }) => name),
    ["ci"],
  );
  await forkd.keys.remove("ci");
  await assert.rejects(caller.snapshots.list().all(), { code: "unauthenticated" });
});
