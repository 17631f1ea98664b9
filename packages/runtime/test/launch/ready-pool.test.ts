import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { isSandbox, type ForkRequest, type SandboxInfo } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { doctor } from "../../src/operations/doctor.ts";
import { pause } from "../../src/operations/pause.ts";
import { getPool, setPool } from "../../src/operations/pool.ts";
import { resume } from "../../src/operations/resume.ts";
import { killAll } from "../../src/operations/sandboxes.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import { admitFork } from "../../src/launch/fork-children.ts";
import { noNetwork } from "../../src/network/sandbox-network.ts";
import type { FakeMachine } from "../fakes/engine.ts";
import {
  addSnapshot,
  assertOnly,
  context,
  facts,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  until,
  type TestRuntime,
  type TestSettings,
} from "../support.ts";

const size = 2;
const on = { poolMemoryPercent: 10 } as const;

async function forkOne(
  { runtime }: TestRuntime,
  tag = "py",
  more: Partial<ForkRequest> = {},
): Promise<SandboxInfo> {
  const [entry] = await fork(runtime, forkRequest({ snapshot_tag: tag, ...more }), context);
  assert.ok(entry && isSandbox(entry), JSON.stringify(entry));
  return entry;
}

async function filled({ runtime }: TestRuntime, tag = "py", ready = size): Promise<void> {
  await until("the pool is full", () => runtime.pool.counts()[tag] === ready);
}

/** No sandbox, and two children that wait. */
async function warmPool(t: TestContext, settings: TestSettings = {}): Promise<TestRuntime> {
  const fixture = await forkableRuntime(t, { ...on, ...settings });
  await setPool(fixture.runtime, { tag: "py", ready: size });
  await filled(fixture);
  return fixture;
}

/** ids of children that wait */
function waiting({ runtime }: TestRuntime): string[] {
  return [...runtime.places].filter((id) => runtime.registry.find(id) === undefined);
}

test("ReadyPool makes as many children as forks asked for at once, hands them out and fills again", async (t) => {
  const fixture = await forkableRuntime(t, on);
  const { runtime, engine } = fixture;
  assert.deepEqual(runtime.pool.counts(), {});
  const first = await fork(runtime, forkRequest({ n: 3 }), context);
  assert.ok(first.every((entry) => isSandbox(entry) && entry.from === "start"));
  await filled(fixture, "py", 3);
  assert.ok(
    engine.machines.slice(3).every(({ isPaused }) => isPaused),
    "a child that waits is stopped",
  );
  const ready = waiting(fixture);
  const second = await fork(runtime, forkRequest({ n: 3 }), context);
  assert.deepEqual(
    second.map((entry) => isSandbox(entry) && [entry.id, entry.from]),
    ready.map((id) => [id, "pool"]),
  );
  assert.ok(engine.machines.slice(3, 6).every(({ isPaused }) => !isPaused));
});

test("a ready child is not a sandbox: neither listed nor counted, and it has no time to live", async (t) => {
  const fixture = await warmPool(t, { maxSandboxes: 1 });
  assert.deepEqual(fixture.runtime.registry.all(), []);
  const { id } = await forkOne(fixture, "py", { ttl_secs: 3600, labels: { job: "x" } });
  const sandbox = fixture.runtime.registry.get(id);
  assert.deepEqual(sandbox.facts.labels, { job: "x" });
  assert.ok((sandbox.expiresAt ?? 0) > Date.now() / 1000 + 3000, "it counts from the hand-out");
  await rejectsWith(fork(fixture.runtime, forkRequest(), context), "capacity_exhausted");
});

test("a ready child has its own entropy and identity before it waits, and gets the clock at the hand-out", async (t) => {
  const fixture = await warmPool(t);
  const { machines } = fixture.engine;
  assert.equal(new Set(machines.map(({ guest }) => guest.identity?.entropy)).size, size);
  const { id, hostname } = await forkOne(fixture);
  const guest = machines.find((machine) => machine.guest.identity?.hostname === hostname)?.guest;
  assert.equal(hostname, id);
  assert.deepEqual(guest?.heard, ["hello", "afterFork", "clock"]);
});

test("ReadyPool stays empty when it is switched off, and setPool() says how to switch it on", async (t) => {
  const fixture = await forkableRuntime(t, { poolMemoryPercent: 0 });
  await forkOne(fixture);
  await forkOne(fixture);
  assert.equal(fixture.engine.asked, 2);
  assert.deepEqual(fixture.runtime.pool.counts(), {});
  await rejectsWith(setPool(fixture.runtime, { tag: "py", ready: 1 }), "wrong_state");
});

test("setPool() keeps a number whatever the demand, null ends that, and an unknown tag is refused", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  await rejectsWith(setPool(runtime, { tag: "no-such", ready: 1 }), "snapshot_not_found");
  const [shelf] = getPool(runtime).snapshots;
  assert.deepEqual([shelf?.tag, shelf?.ready, shelf?.wanted, shelf?.is_set], ["py", size, size, true]);
  await setPool(runtime, { tag: "py", ready: 1 });
  assert.equal(runtime.pool.counts()["py"], 1);
  await setPool(runtime, { tag: "py", ready: null });
  assert.equal(runtime.pool.counts()["py"], 0, "nobody has asked for it");
  await assertOnly(fixture, []);
});

test("ReadyPool does not fill while a fork is in progress", async (t) => {
  const fixture = await forkableRuntime(t, { ...on, forkParallelism: 4 });
  const { engine, runtime } = fixture;
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  engine.script = (nth) => (nth === 1 ? { gate } : {});
  const forking = fork(runtime, forkRequest({ n: 2 }), context);
  await until("one child waits", () => engine.asked === 2 && engine.starting === 1);
  assert.equal(engine.asked, 2);
  open();
  await forking;
  await filled(fixture);
});

test("ReadyPool replaces a child that died while it waited, and removes what is left of it", async (t) => {
  const fixture = await warmPool(t);
  const { engine, runtime } = fixture;
  const [gone] = waiting(fixture);
  engine.machines[0]?.die("killed by the OOM killer");
  await until("its directories are gone", () => !runtime.places.has(gone ?? ""));
  await filled(fixture);
  assert.equal(engine.asked, 3);
});

for (const [what, spoil] of [
  ["dies at the hand-out", (machine: FakeMachine) => void (machine.guest.onClock = () => machine.die("x"))],
  ["refuses a step of the hand-out", ({ guest }: FakeMachine) => void (guest.onClock = "refuse")],
] as const) {
  test(`a ready child that ${what} is replaced, and the caller gets a sandbox`, async (t) => {
    const fixture = await warmPool(t);
    const { engine, runtime } = fixture;
    for (const machine of engine.machines) spoil(machine);
    const bad = waiting(fixture);
    const { id, from } = await forkOne(fixture);
    assert.ok(!bad.includes(id));
    assert.equal(from, "start");
    await until("nothing is left of it", () => !runtime.places.has(bad[0] ?? ""));
  });
}

test("ReadyPool rests after a child could not be made, and keeps those that are ready", async (t) => {
  const fixture = await forkableRuntime(t, on);
  fixture.engine.script = (nth) => (nth === 1 ? { failPrepare: "no memory" } : {});
  await setPool(fixture.runtime, { tag: "py", ready: size });
  await until("it has tried", () => fixture.engine.asked === 2);
  await until("the attempt is over", () => getPool(fixture.runtime).snapshots[0]?.making === 0);
  assert.equal(fixture.runtime.pool.counts()["py"], 1);
  assert.equal((await forkOne(fixture)).from, "pool");
  assert.equal(fixture.engine.asked, 2);
});

test("drop() ends the children of one tag only, and removeSnapshot() forgets what was set for it", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  await addSnapshot(runtime.store, "other");
  await setPool(runtime, { tag: "other", ready: size });
  await filled(fixture, "other");
  await removeSnapshot(runtime, { tag: "py", force: false });
  assert.deepEqual(runtime.pool.counts(), { other: size });
  assert.equal(waiting(fixture).length, size);
  await addSnapshot(runtime.store, "py");
  await runtime.pool.pin("other", 1);
  assert.equal(runtime.pool.counts()["py"], undefined);
  await runtime.pool.forget("other");
  await assertOnly(fixture, []);
});

test("take() does not give a child of a snapshot that was replaced under the same tag", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  await addSnapshot(runtime.store, "py", { ...facts(), created_at_unix: 1_800_000_000 });
  assert.equal(await runtime.pool.take(await runtime.store.get("py")), undefined);
  assert.equal((await forkOne(fixture)).from, "start");
});

test("empty() leaves nothing, and the next fork fills the pool again", async (t) => {
  const fixture = await warmPool(t);
  await fixture.runtime.pool.empty();
  await assertOnly(fixture, []);
  assert.ok(fixture.engine.machines.every(({ disposals }) => disposals === 1));
  const { id } = await forkOne(fixture);
  await killAll(fixture.runtime, { tag: "py" });
  assert.equal(fixture.runtime.registry.find(id), undefined);
});

test("killAll() without a filter empties the pool also while it is being filled", async (t) => {
  const fixture = await forkableRuntime(t, on);
  const { id } = await forkOne(fixture);
  assert.deepEqual(await killAll(fixture.runtime, {}), { killed: [id] });
  await assertOnly(fixture, []);
});

test("a caller that needs memory gets that of the pool, but not at the cost of its own ready children", async (t) => {
  const fixture = await warmPool(t);
  const { runtime, engine } = fixture;
  await addSnapshot(runtime.store, "other");
  const snapshot = await runtime.store.get("py");
  assert.equal(runtime.pool.freeableMib(snapshot), 0);
  runtime.pool.giveUp(snapshot);
  assert.equal(runtime.pool.counts()["py"], size);
  const other = await runtime.store.get("other");
  assert.ok(runtime.pool.freeableMib(other) > 0);
  runtime.pool.giveUp(other);
  assert.equal(runtime.pool.counts()["py"], 0);
  await until("nothing is left of them", () => runtime.places.size === 0);
  assert.ok(engine.machines.every(({ disposals }) => disposals === 1));
  await assertOnly(fixture, []);
  assert.equal(engine.asked, size, "the pool rests");
});

test("admission gives up the pool if that makes room for a fork, and keeps it if not", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  const quota = runtime.quota as { memoryReserveMib: number };
  await addSnapshot(runtime.store, "other");
  quota.memoryReserveMib = 1 << 30;
  await rejectsWith(fork(runtime, forkRequest({ snapshot_tag: "other" }), context), "capacity_exhausted");
  assert.equal(runtime.pool.counts()["py"], size);
  // The host looks as if a child did not fit by a few MiB, which the pool has.
  const check = runtime.admission.background;
  assert.ok(check);
  const freeable = check.freeableMib;
  check.freeableMib = (ask) => freeable(ask) + (1 << 30);
  await forkOne(fixture, "other");
  assert.equal(runtime.pool.counts()["py"], 0);
});

test("a branch with children is admitted by its own memory, not by ready children of its parent", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  const snapshot = await runtime.store.get("py");
  const plan = { snapshot, request: forkRequest({ n: size }), limits: undefined, network: noNetwork };
  const quota = runtime.quota as { memoryReserveMib: number };
  quota.memoryReserveMib = 1 << 30;
  using _ready = admitFork(runtime, plan, undefined).capacity;
  assert.throws(() => admitFork(runtime, { ...plan, isOfBranch: true }, undefined), /memory available/);
});

test("a branch that was in an eval, or whose children may connect, has no ready children", async (t) => {
  const fixture = await forkableRuntime(t, on);
  const { runtime } = fixture;
  const origin = { kind: "branch", sandbox: "sb-1", mode: "full", pause_ms: 1 } as const;
  const network = { mode: "filtered", rules: ["allow example.com:443"] } as const;
  await addSnapshot(runtime.store, "b", {
    ...facts(),
    origin,
    network: { ...network, rules: [...network.rules] },
  });
  await rejectsWith(setPool(runtime, { tag: "b", ready: 1 }), "unsupported");
  await forkOne(fixture, "b");
  await forkOne(fixture, "b");
  await forkOne(fixture);
  await filled(fixture, "py", 1);
  assert.equal(runtime.pool.counts()["b"], 0);
});

test("a fork that the pool can serve needs no more memory of the host", async (t) => {
  const fixture = await warmPool(t);
  const quota = fixture.runtime.quota as { memoryReserveMib: number };
  quota.memoryReserveMib = 1 << 30;
  assert.equal((await forkOne(fixture)).from, "pool");
});

test("ReadyPool keeps nothing ready for a branch that is forked once", async (t) => {
  const fixture = await forkableRuntime(t, on);
  const { runtime } = fixture;
  const branched = {
    ...facts(),
    origin: { kind: "branch", sandbox: "sb-1", mode: "full", pause_ms: 1 } as const,
  };
  await addSnapshot(runtime.store, "b", branched);
  await forkOne(fixture, "b");
  await forkOne(fixture);
  await filled(fixture, "py", 1);
  assert.equal(runtime.pool.counts()["b"], 0);
  await forkOne(fixture, "b");
  await filled(fixture, "b", 2);
});

test("a sandbox forked after the runtime directory was removed has its sockets, and doctor names those without", async (t) => {
  const fixture = await warmPool(t);
  const { runtime, engine, config } = fixture;
  const old = await forkOne(fixture);
  await filled(fixture);
  await rm(config.runtimeDir, { recursive: true });
  const { id, from } = await forkOne(fixture);
  assert.equal(from, "start", "the children that waited have lost their sockets");
  const machine = runtime.registry.get(id).current;
  assert.ok(await engine.canAttach(machine.paths));
  const { checks } = await doctor(runtime);
  const sockets = checks.find(({ name }) => name === "sandbox sockets");
  assert.equal(sockets?.outcome, "warn");
  assert.ok(sockets?.detail.includes(old.id) && !sockets.detail.includes(id), sockets?.detail);
  await pause(runtime, { id: old.id }, context);
  await resume(runtime, { id: old.id }, context);
  const after = await doctor(runtime);
  assert.equal(
    after.checks.find(({ name }) => name === "sandbox sockets"),
    undefined,
  );
});

test("a child whose sockets are removed while it starts is not handed out", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine, config } = fixture;
  let open = (): void => undefined;
  engine.script = () => ({ gate: new Promise<void>((resolve) => (open = resolve)) });
  const forked = fork(runtime, forkRequest(), context);
  await until("the machine starts", () => engine.starting === 1);
  await rm(config.runtimeDir, { recursive: true });
  open();
  await rejectsWith(forked, "wrong_state", /was removed while its machine started/);
  assert.deepEqual([...runtime.places], []);
});
