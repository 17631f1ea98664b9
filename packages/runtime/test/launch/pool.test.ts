import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { isSandbox, type SandboxInfo } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { doctor } from "../../src/operations/doctor.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume } from "../../src/operations/resume.ts";
import { killAll } from "../../src/operations/sandboxes.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import type { RuntimeConfig } from "../../src/config.ts";
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
} from "../support.ts";

const poolSize = 2;

async function forkOne({ runtime }: TestRuntime, tag = "py"): Promise<SandboxInfo> {
  const [entry] = await fork(runtime, forkRequest({ snapshot_tag: tag }), context);
  assert.ok(entry && isSandbox(entry));
  return entry;
}

async function filled({ runtime }: TestRuntime, tag = "py"): Promise<void> {
  await until("the pool is full", () => runtime.pool.counts()[tag] === poolSize);
}

/** One fork, the sandbox gone again, the pool full. */
async function warmPool(t: TestContext, settings: Partial<RuntimeConfig> = {}): Promise<TestRuntime> {
  const fixture = await forkableRuntime(t, { poolSize, ...settings });
  const { id } = await forkOne(fixture);
  await fixture.runtime.registry.remove(id);
  await filled(fixture);
  return fixture;
}

/** ids whose processes wait */
function waiting({ runtime }: TestRuntime): string[] {
  return [...runtime.places].filter((id) => runtime.registry.find(id) === undefined);
}

test("VmmPool fills after the first fork, hands processes out and fills again", async (t) => {
  const fixture = await forkableRuntime(t, { poolSize });
  assert.deepEqual(fixture.runtime.pool.counts(), {});
  assert.equal((await forkOne(fixture)).pooled, false);
  await filled(fixture);
  const [first, second] = waiting(fixture);
  const next = await forkOne(fixture);
  assert.equal(next.pooled, true);
  assert.equal(next.id, first);
  await filled(fixture);
  assert.equal((await forkOne(fixture)).id, second);
  await filled(fixture);
  assert.equal(fixture.engine.asked, 5);
});

test("VmmPool stays empty when it is switched off", async (t) => {
  const fixture = await forkableRuntime(t, { poolSize: 0 });
  await forkOne(fixture);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(fixture.engine.asked, 1);
  assert.deepEqual(fixture.runtime.pool.counts(), {});
});

test("VmmPool does not fill while a fork is in progress", async (t) => {
  const fixture = await forkableRuntime(t, { poolSize, forkParallelism: 4 });
  const { engine, runtime } = fixture;
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  engine.script = (nth) => (nth === 1 ? { gate } : {});
  const forking = fork(runtime, forkRequest({ n: 2 }), context);
  await until("one child waits", () => engine.asked === 2 && engine.starting === 1);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(engine.asked, 2);
  open();
  await forking;
  await filled(fixture);
});

test("VmmPool does not hand out a process that died while it waited, and removes what is left of it", async (t) => {
  const fixture = await warmPool(t);
  const { engine, runtime } = fixture;
  const machines = engine.machines.filter(({ disposals }) => disposals === 0);
  const [, survivor] = waiting(fixture);
  machines[0]?.die("killed by the OOM killer");
  await until("it is gone from the shelf", () => runtime.pool.counts()["py"] === 1);
  await until("its directories are gone", () => runtime.places.size === 1);
  await assertOnly(fixture, [survivor ?? ""]);
  assert.equal((await forkOne(fixture)).id, survivor);
});

test("VmmPool ends its waiting processes when it cannot prepare another one", async (t) => {
  const fixture = await forkableRuntime(t, { poolSize });
  fixture.engine.script = (nth) => (nth === 2 ? { failPrepare: "no memory" } : {});
  const { id } = await forkOne(fixture);
  await until("it has tried", () => fixture.engine.asked === 3);
  await until("the shelf is given up", () => fixture.runtime.pool.counts()["py"] === undefined);
  await until("nothing waits", () => fixture.runtime.places.size === 1);
  await assertOnly(fixture, [id]);
  await fixture.runtime.registry.remove(id);
  await forkOne(fixture);
  await filled(fixture);
});

test("drop() ends the processes of one tag only", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  await addSnapshot(runtime.store, "other");
  const { id } = await forkOne(fixture, "other");
  await filled(fixture, "other");
  await runtime.pool.drop("py");
  assert.deepEqual(runtime.pool.counts(), { other: poolSize });
  assert.equal(waiting(fixture).length, poolSize);
  await runtime.pool.drop("other");
  await assertOnly(fixture, [id]);
});

test("drop() does not keep the process that was being prepared", async (t) => {
  const fixture = await warmPool(t);
  const { runtime, engine } = fixture;
  const { id } = await forkOne(fixture);
  const asked = engine.asked;
  await runtime.pool.drop("py");
  await until("the filler is done", () => engine.asked <= asked + 1 && runtime.places.size === 1);
  await assertOnly(fixture, [id]);
  assert.deepEqual(runtime.pool.counts(), {});
});

test("take() does not give a process of a snapshot that was replaced under the same tag", async (t) => {
  const fixture = await warmPool(t);
  const { runtime } = fixture;
  await addSnapshot(runtime.store, "py", { ...facts(), created_at_unix: 1_800_000_000 });
  assert.equal(await runtime.pool.take(await runtime.store.get("py")), undefined);
  assert.equal((await forkOne(fixture)).pooled, false);
});

test("empty() leaves nothing, and the next fork fills the pool again", async (t) => {
  const fixture = await warmPool(t);
  await fixture.runtime.pool.empty();
  await assertOnly(fixture, []);
  assert.ok(fixture.engine.machines.every(({ disposals }) => disposals === 1));
  assert.equal((await forkOne(fixture)).pooled, false);
  await filled(fixture);
});

test("killAll() without a filter empties the pool also while it is being filled", async (t) => {
  const fixture = await forkableRuntime(t, { poolSize });
  const { id } = await forkOne(fixture);
  assert.deepEqual(await killAll(fixture.runtime, {}), { killed: [id] });
  await assertOnly(fixture, []);
  await forkOne(fixture);
  await filled(fixture);
  await killAll(fixture.runtime, { tag: "py" });
  assert.equal(fixture.runtime.pool.counts()["py"], poolSize);
});

test("removeSnapshot() ends the processes that wait for it", async (t) => {
  const fixture = await warmPool(t);
  await removeSnapshot(fixture.runtime, { tag: "py", force: false });
  await assertOnly(fixture, []);
  assert.deepEqual(await fixture.runtime.store.list(), []);
});

test("VmmPool keeps nothing ready for a branch that is forked once, and forgets the coldest of many snapshots", async (t) => {
  const fixture = await forkableRuntime(t, { poolSize });
  const { runtime } = fixture;
  const branched = {
    ...facts(),
    origin: { kind: "branch", sandbox: "sb-1", mode: "full", pause_ms: 1 } as const,
  };
  await addSnapshot(runtime.store, "b", branched);
  await forkOne(fixture, "b");
  await forkOne(fixture);
  await filled(fixture);
  assert.deepEqual(runtime.pool.counts(), { b: 0, py: poolSize });
  await forkOne(fixture, "b");
  await filled(fixture, "b");
  for (let nth = 0; nth < 8; nth++) {
    await addSnapshot(runtime.store, `other-${nth}`);
    await forkOne(fixture, `other-${nth}`);
    await filled(fixture, `other-${nth}`);
  }
  await until("the coldest are gone", () => Object.keys(runtime.pool.counts()).length === 8);
  assert.equal(runtime.pool.counts()["py"], undefined);
  assert.equal(runtime.pool.counts()["b"], undefined);
});

test("a sandbox forked after the runtime directory was removed has its sockets, and doctor names those without", async (t) => {
  const fixture = await warmPool(t);
  const { runtime, engine, config } = fixture;
  const old = await forkOne(fixture);
  await filled(fixture);
  await rm(config.runtimeDir, { recursive: true });
  const { id, pooled } = await forkOne(fixture);
  assert.equal(pooled, false, "the processes that waited have lost their sockets");
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
