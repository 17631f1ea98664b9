import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { appendFile, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createLogger, nullLogger, Scope } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { Idempotency, type KeyedCall } from "../../src/idempotency/idempotency.ts";
import { Journal } from "../../src/idempotency/journal.ts";
import type { Handlers } from "../../src/http/handlers.ts";
import { deferred, open, post, send, startServer, temporaryDir } from "../support.ts";

const request = { snapshot_tag: "py", n: 2 };
const keyed = (key: string) => ({ "idempotency-key": key });

/** A fork that counts its calls; its children are named by that. */
function counting(before: (signal: AbortSignal) => Promise<void> = async () => {}) {
  const calls = { count: 0 };
  const fork: Handlers["fork"] = async (_, { signal }) => {
    calls.count++;
    const id = `sb-${calls.count}`;
    await before(signal);
    return [{ id }] as never;
  };
  return { calls, fork };
}

test("a repeated call with the same key gets the answer of the first, and runs once", async () => {
  const { calls, fork } = counting();
  await using server = await startServer({ fork });
  const first = await post(server.socket, "/v1/sandboxes", request, keyed("k 1"));
  assert.deepEqual([first.status, first.json], [201, [{ id: "sb-1" }]]);
  assert.equal(first.headers["idempotent-replayed"], undefined);
  // The order of the fields and what has a default make no other request.
  const again = await post(
    server.socket,
    "/v1/sandboxes",
    { n: 2, labels: {}, snapshot_tag: "py" },
    keyed("k 1"),
  );
  assert.deepEqual([again.status, again.json], [201, [{ id: "sb-1" }]]);
  assert.equal(again.headers["idempotent-replayed"], "true");
  assert.equal(again.headers["content-type"], "application/json");
  assert.equal(calls.count, 1);
  await post(server.socket, "/v1/sandboxes", request, keyed("k 2"));
  await post(server.socket, "/v1/sandboxes", request);
  assert.equal(calls.count, 3);
});

test("a call that arrives while the first runs waits for it", async () => {
  const entered = deferred();
  const goOn = deferred();
  const { calls, fork } = counting(async () => {
    entered.resolve();
    await goOn.promise;
  });
  await using server = await startServer({ fork });
  const all = Array.from({ length: 5 }, () => post(server.socket, "/v1/sandboxes", request, keyed("k")));
  await entered.promise;
  const other = await post(server.socket, "/v1/sandboxes", { ...request, n: 3 }, keyed("k"));
  assert.deepEqual([other.status, other.json.code], [422, "idempotency_mismatch"]);
  goOn.resolve();
  const answers = await Promise.all(all);
  assert.ok(answers.every(({ text }) => text === '[{"id":"sb-1"}]'));
  assert.equal(answers.filter(({ headers }) => headers["idempotent-replayed"] === undefined).length, 1);
  assert.equal(calls.count, 1);
});

test("a key that was used for another request is refused, also on another route", async () => {
  const { calls, fork } = counting();
  await using server = await startServer({ fork, createWorkspace: () => assert.fail("made") });
  await post(server.socket, "/v1/sandboxes", request, keyed("k"));
  const other = await post(server.socket, "/v1/sandboxes", { ...request, n: 1 }, keyed("k"));
  assert.deepEqual(
    [other.status, other.json.code, other.json.details],
    [422, "idempotency_mismatch", { key: "k" }],
  );
  const elsewhere = await post(
    server.socket,
    "/v1/workspaces",
    { name: "w", snapshot_tag: "py" },
    keyed("k"),
  );
  assert.equal(elsewhere.json.code, "idempotency_mismatch");
  assert.equal(calls.count, 1);
});

test("a failure is not kept: waiting calls share it, later calls try again", async () => {
  const goOn = deferred();
  const { signal } = new AbortController();
  const idempotency = new Idempotency();
  let calls = 0;
  const failing = async () => {
    calls++;
    await goOn.promise;
    throw new AppError("capacity_exhausted", "No room");
  };
  const call = { key: "k", route: "fork", input: {}, context: { signal } };
  const both = [1, 2].map(() =>
    assert.rejects(idempotency.run(call, failing), { code: "capacity_exhausted" }),
  );
  goOn.resolve();
  await Promise.all(both);
  assert.equal(calls, 1);
  assert.equal((await idempotency.run(call, async () => ({ status: 201, body: "x" }))).replayed, false);
});

test("a failure has its own status with a key too, and leaves the key free", async () => {
  let fails = true;
  const { calls, fork } = counting(async () => {
    if (fails) throw new AppError("snapshot_not_found", "No such snapshot");
  });
  await using server = await startServer({ fork });
  assert.equal(
    (await post(server.socket, "/v1/sandboxes", request, keyed("k"))).json.code,
    "snapshot_not_found",
  );
  fails = false;
  const again = await post(server.socket, "/v1/sandboxes", request, keyed("k"));
  assert.deepEqual([again.status, again.headers["idempotent-replayed"]], [201, undefined]);
  assert.equal(calls.count, 2);
});

test("a call whose only client disconnects is aborted, and a repeated call runs it again", async () => {
  const entered = deferred();
  const undone = deferred();
  let nth = 0;
  const { calls, fork } = counting(async (signal) => {
    if (nth++ > 0) return;
    entered.resolve();
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    await new Promise((resolve) => setImmediate(resolve));
    undone.resolve();
    throw new AppError("cancelled", "undone");
  });
  await using server = await startServer({ fork });
  const request1 = open(server.socket, "/v1/sandboxes", { method: "POST", headers: keyed("k") });
  request1.on("error", () => {});
  request1.end(JSON.stringify(request));
  await entered.promise;
  request1.destroy();
  await undone.promise;
  const again = await post(server.socket, "/v1/sandboxes", request, keyed("k"));
  assert.deepEqual([again.status, again.json], [201, [{ id: "sb-2" }]]);
  assert.equal(calls.count, 2);
});

test("a call whose client disconnects keeps running for another that waits for it", async () => {
  const entered = deferred();
  const goOn = deferred();
  let aborted = false;
  const { calls, fork } = counting(async (signal) => {
    signal.addEventListener("abort", () => (aborted = true));
    entered.resolve();
    await goOn.promise;
  });
  const idempotency = new Idempotency();
  const first = new AbortController();
  const call = (signal: AbortSignal): KeyedCall => ({
    key: "k",
    route: "fork",
    input: {},
    context: { signal },
  });
  const work = async (signal: AbortSignal) => ({
    status: 201,
    body: JSON.stringify(await fork({} as never, { signal, log: nullLogger(), requestId: "r" })),
  });
  const gone = assert.rejects(idempotency.run(call(first.signal), work), /left/);
  await entered.promise;
  const waiting = idempotency.run(call(new AbortController().signal), work);
  first.abort(new Error("left"));
  await gone;
  goOn.resolve();
  assert.deepEqual(await waiting, { status: 201, body: '[{"id":"sb-1"}]', replayed: true });
  assert.equal(aborted, false);
  assert.equal(calls.count, 1);
});

test("a key that is made again under an old name does not get the old key's answers", async () => {
  const { calls, fork } = counting();
  await using server = await startServer({ fork });
  const call = (key: string) =>
    post(server.url, "/v1/sandboxes", request, { ...keyed("k"), authorization: `Bearer ${key}` });
  const first = await server.keys.create({ name: "ci", scope: "run" });
  await call(first.key);
  assert.equal((await call(first.key)).headers["idempotent-replayed"], "true");
  await server.keys.remove("ci");
  const second = await server.keys.create({ name: "ci", scope: "run" });
  assert.equal((await call(second.key)).headers["idempotent-replayed"], undefined);
  assert.equal(calls.count, 2);
});

test("an answer that an older version wrote counts for a key that existed then", async () => {
  await using scope = new Scope();
  const path = join(await temporaryDir(scope), "answers");
  const signal = new AbortController().signal;
  const at = Date.now() - 60_000;
  const input = {};
  const runAs = async (createdAtUnix: number) => {
    await using idempotency = await Idempotency.open(path, nullLogger());
    const caller = { name: "ci", key: { id: "0123456789abcdef", createdAtUnix } };
    const work = async () => ({ status: 201, body: "new" });
    return (await idempotency.run({ key: "k", route: "fork", input, context: { signal, caller } }, work))
      .body;
  };
  const digest = createHash("sha256")
    .update(JSON.stringify(["fork", input]))
    .digest("hex");
  const entry = { principal: "ci", key: "k", route: "fork", digest, status: 201, body: "old", at_ms: at };
  await writeFile(path, `${JSON.stringify(entry)}\n`);
  assert.equal(await runAs(at / 1000 - 100), "old");
  assert.equal(await runAs(at / 1000 + 10), "new");
});

test("each caller has its own keys", async () => {
  const idempotency = new Idempotency();
  const { signal } = new AbortController();
  let made = 0;
  const work = async () => ({ status: 201, body: String(++made) });
  const as = (name: string) =>
    idempotency.run({ key: "k", route: "fork", input: {}, context: { signal, caller: { name } } }, work);
  assert.deepEqual([(await as("ann")).body, (await as("bob")).body, (await as("ann")).body], ["1", "2", "1"]);
});

test("invalid keys, and keys on calls that refuse them, are refused", async () => {
  const { fork } = counting();
  await using server = await startServer({ fork, health: () => ({ ok: true }) });
  for (const key of ["", "x".repeat(129), "é"]) {
    const answer = await post(server.socket, "/v1/sandboxes", request, { "idempotency-key": key });
    assert.equal(answer.status, 400, JSON.stringify(key));
    assert.match(answer.json.error, /Idempotency-Key: must be 1 to 128 printable/);
  }
  const build = await post(server.socket, "/v1/snapshots", { tag: "t", recipe: "/r" }, keyed("k"));
  assert.equal(build.status, 400);
  assert.match(build.json.error, /does not go with this call; the tag makes it safe/);
  assert.equal((await send(server.socket, "/healthz", { headers: keyed("k") })).status, 200);
});

const run = (idempotency: Idempotency, key: string, body: string) =>
  idempotency.run(
    { key, route: "fork", input: {}, context: { signal: new AbortController().signal } },
    async () => ({ status: 201, body }),
  );

test("answers outlive the daemon, and a line that was cut short loses only itself", async () => {
  await using scope = new Scope();
  const path = join(await temporaryDir(scope), "idempotency.jsonl");
  {
    await using before = await Idempotency.open(path, nullLogger());
    await run(before, "a", "first");
    // On disk before the answer.
    assert.match(await readFile(path, "utf8"), /"key":"a".*"body":"first"/);
    await run(before, "b", "second");
  }
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  await appendFile(path, '{"principal":"","key":"c","rou');
  await using after = await Idempotency.open(path, nullLogger());
  assert.equal(after.size, 2);
  assert.deepEqual(await run(after, "a", "other"), { status: 201, body: "first", replayed: true });
  assert.equal((await run(after, "c", "third")).replayed, false);
  assert.equal((await readFile(path, "utf8")).split("\n").length, 4);
});

test("answers older than a day are dropped, and so are their lines", async () => {
  await using scope = new Scope();
  const path = join(await temporaryDir(scope), "idempotency.jsonl");
  const entry = { principal: "", route: "fork", digest: "d", status: 201, body: "x" };
  const hour = 3_600_000;
  const lines = [
    // By a clock that was a year ahead.
    { ...entry, key: "future", at_ms: Date.now() + 365 * 24 * hour },
    { ...entry, key: "old", at_ms: Date.now() - 25 * hour },
    { ...entry, key: "young", at_ms: Date.now() - 23 * hour },
  ];
  await writeFile(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  await using idempotency = await Idempotency.open(path, nullLogger());
  assert.equal(idempotency.size, 2);
  const left = (await readFile(path, "utf8")).trimEnd().split("\n");
  const entries = left.map((line) => JSON.parse(line) as { key: string; at_ms: number });
  assert.deepEqual(entries.map(({ key }) => key).sort(), ["future", "young"]);
  assert.ok(entries.every((each) => each.at_ms <= Date.now() && !("dueMs" in each)));
});

test("there are never more answers than the limits allow; the oldest go first", async () => {
  const few = new Idempotency({ limits: { entries: 3, bytes: 1_000_000 } });
  for (const key of ["a", "b", "c", "d"]) await run(few, key, key);
  assert.equal(few.size, 3);
  assert.equal((await run(few, "d", "x")).body, "d");
  assert.equal((await run(few, "a", "new")).body, "new");
  const small = new Idempotency({ limits: { entries: 100, bytes: 10_000 } });
  for (const key of ["a", "b", "c"]) await run(small, key, "y".repeat(4000));
  assert.equal(small.size, 2);
});

test("an answer that cannot be written to disk is sent, and kept while the daemon runs", async () => {
  const records: { event?: string }[] = [];
  const log = createLogger({
    level: "error",
    destination: { write: (line: string) => void records.push(JSON.parse(line) as { event?: string }) },
  });
  await using idempotency = new Idempotency({ journal: new Journal("/dev/full"), log });
  assert.equal((await run(idempotency, "a", "made")).body, "made");
  assert.deepEqual(await run(idempotency, "a", "other"), { status: 201, body: "made", replayed: true });
  assert.deepEqual(
    records.map(({ event }) => event),
    ["idempotency.journal"],
  );
});

test("a file that holds only a line cut short loses no later line", async () => {
  await using scope = new Scope();
  const path = join(await temporaryDir(scope), "journal");
  await writeFile(path, '{"principal":"');
  const call: KeyedCall = {
    key: "k",
    route: "fork",
    input: {},
    context: { signal: new AbortController().signal },
  };
  {
    await using first = await Idempotency.open(path, nullLogger());
    await first.run(call, async () => ({ status: 201, body: "made" }));
  }
  await using second = await Idempotency.open(path, nullLogger());
  assert.equal(second.size, 1);
});

test("a journal that is a directory is named", async () => {
  await using scope = new Scope();
  const path = await temporaryDir(scope);
  await assert.rejects(Idempotency.open(path, nullLogger()), {
    code: "host_not_ready",
    message: `Cannot open the answers to repeated calls in "${path}": it is a directory, not a file`,
  });
});
