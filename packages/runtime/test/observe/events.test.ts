import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { isSandbox, type BranchRequest, type ForkdEvent } from "@forkd/contract";
import { EventBus, type Listener } from "../../src/observe/events.ts";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { metricsText, stats } from "../../src/operations/observe.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { kill } from "../../src/operations/sandboxes.ts";
import { setTimeouts } from "../../src/operations/timeouts.ts";
import { findSnapshots } from "../../src/operations/list-snapshots.ts";
import { gc } from "../../src/operations/gc.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import type { Script } from "../fakes/engine.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, until } from "../support.ts";

/** What a listener gets, as it comes. */
function collect(listener: Listener): ForkdEvent[] {
  const events: ForkdEvent[] = [];
  void (async () => {
    for await (const event of listener) events.push(event);
  })();
  return events;
}

async function take(listener: Listener, count: number): Promise<ForkdEvent[]> {
  const events: ForkdEvent[] = [];
  if (count === 0) return events;
  for await (const event of listener) {
    events.push(event);
    if (events.length === count) break;
  }
  return events;
}

const types = (events: readonly ForkdEvent[]) => events.map(({ type }) => type);
const tell = (bus: EventBus, count: number) => {
  for (let nth = 0; nth < count; nth++) bus.snapshot("snapshot.ready", `t${nth}`);
};

test("listen() neither counts nor limits listeners of the daemon itself", () => {
  const bus = new EventBus({ maxListeners: 1 });
  bus.listen({}, { isOwn: true });
  assert.equal(bus.listeners, 0);
  bus.listen({});
  bus.listen({}, { isOwn: true });
  assert.equal(bus.listeners, 1);
  assert.throws(() => bus.listen({}), { code: "capacity_exhausted" });
});

test("EventBus keeps no place for a listener that was cut off and asks for nothing more", () => {
  const bus = new EventBus({ maxListeners: 1 });
  const stop = new AbortController();
  bus.listen({}, { signal: stop.signal });
  assert.equal(bus.listeners, 1);
  stop.abort();
  assert.equal(bus.listeners, 0);
});

test("EventBus gives every listener what happens from then on, in order", async () => {
  const bus = new EventBus();
  tell(bus, 1);
  const first = take(bus.listen({}), 2);
  const second = take(bus.listen({}), 1);
  tell(bus, 2);
  const ids = [`${bus.epoch}-2`, `${bus.epoch}-3`];
  assert.deepEqual(
    (await first).map(({ id }) => id),
    ids,
  );
  assert.deepEqual(
    (await second).map(({ id }) => id),
    ids.slice(0, 1),
  );
  assert.equal(bus.listeners, 0);
});

test("EventBus continues after the last event that the listener saw", async () => {
  const bus = new EventBus();
  tell(bus, 5);
  const events = await take(bus.listen({}, { after: `${bus.epoch}-3` }), 2);
  assert.deepEqual(
    events.map(({ tag }) => tag),
    ["t3", "t4"],
  );
  const upToDate = bus.listen({}, { after: `${bus.epoch}-5` });
  tell(bus, 1);
  assert.deepEqual(types(await take(upToDate, 1)), ["snapshot.ready"]);
});

test("EventBus begins with reset where events are lost", async () => {
  const bus = new EventBus({ kept: 3 });
  tell(bus, 5);
  for (const after of [`${bus.epoch}-1`, `${bus.epoch}-99`, "0123456789ab-4"]) {
    const listener = bus.listen({ type: ["sandbox.died"] }, { after });
    const [event] = await take(listener, 1);
    assert.equal(event?.type, "reset", after);
    assert.equal(event.id, `${bus.epoch}-5`, "its id is one to continue from");
  }
  // Events 3, 4 and 5 are kept, so nothing is lost after 2.
  assert.equal((await take(bus.listen({}, { after: `${bus.epoch}-2` }), 1))[0]?.type, "snapshot.ready");
  assert.throws(() => bus.listen({}, { after: "nonsense" }), { code: "invalid_request" });
  assert.equal(bus.listeners, 0);
});

test("EventBus tells a listener that does not read that it has lost events, and ends it", async () => {
  const bus = new EventBus({ kept: 3 });
  const slow = bus.listen({});
  tell(bus, 3);
  assert.equal(slow.overflowed.aborted, false);
  tell(bus, 1);
  assert.equal(slow.overflowed.aborted, true);
  const events = await take(slow, 9);
  assert.deepEqual(types(events), ["overflow"]);
  assert.equal(bus.listeners, 0);
});

test("EventBus does not take a listener for slow whose filter passes nothing", async () => {
  const bus = new EventBus({ kept: 3 });
  const events = collect(bus.listen({ tag: "wanted" }));
  for (let nth = 0; nth < 20; nth++) {
    tell(bus, 1);
    await new Promise((resolve) => setImmediate(resolve));
  }
  bus.snapshot("snapshot.ready", "wanted");
  await until("the event comes", () => events.length > 0);
  assert.deepEqual(types(events), ["snapshot.ready"]);
  bus.close();
});

test("EventBus refuses more listeners than its limit, and forgets those that end", async () => {
  const bus = new EventBus({ maxListeners: 2 });
  const stop = new AbortController();
  const stopped = take(bus.listen({}, { signal: stop.signal }), 1);
  const unused = bus.listen({});
  assert.throws(() => bus.listen({}), { code: "capacity_exhausted" });
  stop.abort();
  assert.deepEqual(await stopped, []);
  await unused[Symbol.asyncIterator]().return?.();
  assert.equal(bus.listeners, 0);
  bus.close();
});

test("EventBus ends every listener after daemon.stopping", async () => {
  const bus = new EventBus();
  const all = bus.listen({});
  const filtered = bus.listen({ type: ["sandbox.died"] });
  bus.close();
  assert.deepEqual(types(await take(all, 9)), ["daemon.stopping"]);
  assert.deepEqual(await take(filtered, 9), []);
  assert.equal(bus.listeners, 0);
});

async function watched(t: TestContext) {
  const fixture = await forkableRuntime(t);
  const events = collect(fixture.runtime.events.listen({}));
  const came = (...expected: string[]) =>
    until(`there are ${expected.join(", ")}`, () => types(events).join() === expected.join()).catch(
      (error: Error) => assert.deepEqual(types(events), expected, error.message),
    );
  const forkOne = async (some = {}) => {
    const [entry] = await fork(fixture.runtime, forkRequest(some), context);
    assert.ok(entry && isSandbox(entry));
    return entry.id;
  };
  return { ...fixture, events, came, forkOne };
}

const branchRequest = (id: string, some: Partial<BranchRequest> = {}): BranchRequest => ({
  id,
  wait: true,
  n: 0,
  vary: [],
  env: {},
  labels: {},
  ...some,
});

test("every change of a sandbox is an event", async (t) => {
  const { runtime, events, came, forkOne } = await watched(t);
  const id = await forkOne({ labels: { job: "1" } });
  await pause(runtime, { id }, context);
  await resume(runtime, { id }, context);
  await branch(runtime, branchRequest(id, { tag: "b" }), context);
  await rewind(runtime, { id, to: "b" }, context);
  await kill(runtime, { id });
  await came(
    "sandbox.created",
    "sandbox.paused",
    "sandbox.resumed",
    "snapshot.writing",
    "snapshot.ready",
    "sandbox.rewound",
    "sandbox.killed",
  );
  assert.deepEqual(
    events.map(({ sandbox }) => sandbox?.state),
    ["running", "paused", "running", undefined, undefined, "running", "dead"],
  );
  assert.ok(events.every(({ sandbox_id }) => sandbox_id === id));
  assert.deepEqual(
    events.map(({ tag }) => tag),
    ["py", "py", "py", "b", "b", "b", "b"],
  );
});

test("a sandbox that stops, reverts to its saved state or expires is an event with the reason", async (t) => {
  const { runtime, engine, events, came, forkOne } = await watched(t);
  await forkOne();
  engine.machines.at(-1)?.die("guest: Kernel panic");
  await came("sandbox.created", "sandbox.died");
  assert.equal(events[1]?.reason, "guest: Kernel panic");
  const saved = await forkOne();
  await pause(runtime, { id: saved }, context);
  await resume(runtime, { id: saved }, context);
  engine.machines.at(-1)?.die("gone");
  await until("it is paused again", () => types(events).at(-1) === "sandbox.paused");
  assert.match(events.at(-1)?.reason ?? "", /its machine ended \(gone\)/);
  const expiring = await forkOne();
  await setTimeouts(runtime, { id: expiring, ttl_secs: 1 });
  await until("it expires", () => types(events).at(-1) === "sandbox.expired");
  assert.equal(events.at(-1)?.sandbox_id, expiring);
});

test("an event about a snapshot comes when the list shows the same", async (t) => {
  const { runtime, engine, events, forkOne } = await watched(t);
  const script: Script = {};
  engine.script = () => script;
  const id = await forkOne();
  const told: string[] = [];
  runtime.events.onEvent = ({ type, tag = "" }) => {
    if (type !== "snapshot.writing")
      told.push(`${tag} ${runtime.branches.has(tag) ? "in the book" : "settled"}`);
  };
  await branch(runtime, branchRequest(id, { tag: "later", wait: false }), context);
  await until("it is ready", () => types(events).includes("snapshot.ready"));
  await removeSnapshot(runtime, { tag: "later" });
  script.fail = { step: "write", error: new Error("no space for it") };
  await branch(runtime, branchRequest(id, { tag: "never", wait: false }), context);
  await until("it has failed", () => types(events).includes("snapshot.failed"));
  assert.match(events.at(-1)?.reason ?? "", /no space for it/);
  await gc(runtime, { dry_run: false });
  await assert.rejects(branch(runtime, branchRequest(id, { tag: "waited" }), context));
  await until(
    "the metrics show it",
    () => events.at(-1)?.tag === "waited" && types(events).at(-1) === "snapshot.failed",
  );
  assert.deepEqual(
    events.map(({ type, tag }) => `${type} ${tag}`),
    [
      "sandbox.created py",
      "snapshot.writing later",
      "snapshot.ready later",
      "snapshot.removed later",
      "snapshot.writing never",
      "snapshot.failed never",
      "snapshot.removed never",
      "snapshot.writing waited",
      "snapshot.failed waited",
    ],
  );
  assert.ok(
    told.every((each) => each.endsWith(" settled")),
    told.join(),
  );
  assert.deepEqual(
    (await findSnapshots(runtime, { state: "ready" })).map(({ tag }) => tag),
    ["py"],
  );
});

test("filters choose by sandbox, tag and labels", async (t) => {
  const { runtime, forkOne } = await watched(t);
  const byLabel = collect(runtime.events.listen({ label: ["job=2", "kind"] }));
  const byTag = collect(runtime.events.listen({ tag: "b", type: ["snapshot.*"] }));
  await forkOne({ labels: { job: "1", kind: "x" } });
  const id = await forkOne({ labels: { job: "2", kind: "x" } });
  const bySandbox = collect(runtime.events.listen({ sandbox: id }));
  await branch(runtime, branchRequest(id, { tag: "b" }), context);
  await kill(runtime, { id });
  await until("all came", () => bySandbox.length === 3 && byTag.length === 2);
  assert.deepEqual(types(byLabel), ["sandbox.created", "sandbox.killed"]);
  assert.deepEqual(types(byTag), ["snapshot.writing", "snapshot.ready"]);
  assert.deepEqual(types(bySandbox), ["snapshot.writing", "snapshot.ready", "sandbox.killed"]);
});

test("metricsText() counts what happened, and an ending once", async (t) => {
  const { runtime, engine, forkOne } = await watched(t);
  const dead = await forkOne();
  engine.machines.at(-1)?.die("gone");
  await until("it is dead", () => runtime.registry.get(dead).isDead);
  await until("the metrics show it", async () => /reason="died"} 1/.test(await metricsText(runtime)));
  await kill(runtime, { id: dead });
  await kill(runtime, { id: await forkOne() });
  await forkOne();
  const text = await metricsText(runtime);
  for (const line of [
    'forkd_sandboxes_ended_total{reason="killed"} 1',
    'forkd_sandboxes_ended_total{reason="died"} 1',
    'forkd_sandboxes{state="running"} 1',
    "forkd_sandboxes_active 1",
    "forkd_ready_seconds_count 3",
    "forkd_fork_seconds_count 3",
    "forkd_snapshots_total 1",
    "forkd_branch_concurrency_cap 8",
  ])
    assert.ok(text.split("\n").includes(line), line);
});

test("stats() measures what runs, and says nothing of what has no machine", async (t) => {
  const { runtime, forkOne } = await watched(t);
  const running = await forkOne({ labels: { job: "1" } });
  const paused = await forkOne();
  await pause(runtime, { id: paused }, context);
  const { sandboxes } = await stats(runtime, {});
  assert.deepEqual(sandboxes.map(({ id }) => id).sort(), [running, paused].sort());
  const quiet = sandboxes.find(({ id }) => id === paused);
  assert.equal(quiet?.state, "paused");
  assert.equal(quiet?.cpu_seconds, undefined);
  assert.ok(sandboxes.every(({ disk_bytes }) => disk_bytes > 0));
  assert.deepEqual(
    (await stats(runtime, { label: ["job"] })).sandboxes.map(({ id }) => id),
    [running],
  );
});

test("listen() of a runtime refuses an id that is none", async (t) => {
  const { runtime } = await watched(t);
  await rejectsWith(
    Promise.resolve().then(() => runtime.events.listen({}, { after: "x" })),
    "invalid_request",
    /after/,
  );
});
