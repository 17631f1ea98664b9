import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { isSandbox, type BranchRequest, type GcReport } from "@forkd/contract";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { gc } from "../../src/operations/gc.ts";
import { listSnapshots } from "../../src/operations/list-snapshots.ts";
import type { Runtime } from "../../src/runtime.ts";
import { context, forkableRuntime, forkRequest, until } from "../support.ts";

function request(id: string, tag: string): BranchRequest {
  return { id, tag, wait: true, n: 0, vary: [], env: {}, labels: {} };
}

async function forkOne(runtime: Runtime, tag: string): Promise<string> {
  const [entry] = await fork(runtime, forkRequest({ snapshot_tag: tag }), context);
  assert.ok(entry && isSandbox(entry));
  return entry.id;
}

/** py ← one, two; two ← three. Nothing runs. */
async function branches(t: TestContext, quota = {}): Promise<Runtime> {
  const { runtime } = await forkableRuntime(t, { quota });
  const first = await forkOne(runtime, "py");
  for (const tag of ["one", "two"]) await branch(runtime, request(first, tag), context);
  const second = await forkOne(runtime, "two");
  await branch(runtime, request(second, "three"), context);
  for (const id of [first, second]) await runtime.registry.remove(id);
  return runtime;
}

const tagsOf = (report: GcReport) =>
  report.removed.filter(({ kind }) => kind === "snapshot").map(({ name }) => name);
const tagsIn = async (runtime: Runtime) => (await listSnapshots(runtime)).map(({ tag }) => tag);

test("gc() removes no finished snapshot unless it is asked to", async (t) => {
  const runtime = await branches(t);
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: false })), []);
  assert.deepEqual(await tagsIn(runtime), ["one", "py", "three", "two"]);
});

test("gc() of branches announces and then removes whole chains, never a build", async (t) => {
  const runtime = await branches(t);
  const told = await gc(runtime, { dry_run: true, branches: true });
  assert.deepEqual(tagsOf(told), ["three", "two", "one"], "a layer before what it stands on");
  assert.deepEqual(await tagsIn(runtime), ["one", "py", "three", "two"]);
  assert.ok(told.removed.every(({ kind, bytes }) => kind !== "snapshot" || bytes > 0));
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: false, branches: true })), tagsOf(told));
  assert.deepEqual(await tagsIn(runtime), ["py"]);
});

test("gc() keeps the newest, and those younger than asked", async (t) => {
  const runtime = await branches(t);
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: true, older_than_secs: 3600 })), []);
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: true, older_than_secs: 0, keep_last: 3 })), []);
  // "three" is kept, so "two", over which it is a layer, cannot go.
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: false, keep_last: 1 })), ["one"]);
  assert.deepEqual(await tagsIn(runtime), ["py", "three", "two"]);
});

test("gc() takes no branch that a sandbox runs from", async (t) => {
  const runtime = await branches(t);
  const id = await forkOne(runtime, "three");
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: false, branches: true })), ["one"]);
  await runtime.registry.remove(id);
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: false, branches: true })), ["three", "two"]);
});

test("gc() takes no branch that is being forked, and tells of those that it takes", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  const source = await forkOne(runtime, "py");
  for (const tag of ["one", "two"]) await branch(runtime, request(source, tag), context);
  await runtime.registry.remove(source);
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  engine.script = () => ({ gate });
  const forking = forkOne(runtime, "two");
  await until("the child is on its way", () => engine.starting === 1);
  const told: (string | undefined)[] = [];
  runtime.events.onEvent = ({ type, tag }) => void (type === "snapshot.removed" && told.push(tag));
  assert.deepEqual(tagsOf(await gc(runtime, { dry_run: false, branches: true })), ["one"]);
  assert.deepEqual(told, ["one"]);
  open();
  await forking;
});

test("the daemon applies its retention automatically", async (t) => {
  const runtime = await branches(t, { gcIntervalSecs: 1, retention: { maxAgeDays: 0, keepLast: 2 } });
  await until("the oldest branch is collected", async () => (await tagsIn(runtime)).length === 3);
  assert.deepEqual(await tagsIn(runtime), ["py", "three", "two"]);
});
