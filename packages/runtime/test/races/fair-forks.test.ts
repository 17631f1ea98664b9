/** Who waits for whom when more children are asked for than are started at the same time. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isSandbox } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume } from "../../src/operations/resume.ts";
import type { Runtime } from "../../src/runtime.ts";
import { assertOnly, context, forkableRuntime, forkRequest, rejectsWith, until } from "../support.ts";

const many = 20;

function forkAs(runtime: Runtime, name: string, n: number, signal?: AbortSignal) {
  return fork(runtime, forkRequest({ n, labels: { who: name } }), { ...context, caller: { name }, signal });
}

/** Names of owners in the order in which their sandboxes began. */
function order(runtime: Runtime): (string | undefined)[] {
  return runtime.registry.all().map(({ facts }) => facts.owner);
}

function gated(): { gate: Promise<void>; open: () => void } {
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  return { gate, open };
}

test("a call for one child does not wait for all of a call for many, of another caller or the same", async (t) => {
  for (const other of ["small", "large"]) {
    const { runtime, engine } = await forkableRuntime(t);
    const { gate, open } = gated();
    engine.script = (nth) => (nth === 0 ? { gate } : {});
    const large = forkAs(runtime, "large", many);
    await until("the first child is on its way", () => engine.starting === 1);
    const small = forkAs(runtime, other, 1);
    await until("both calls wait", () => runtime.starts.waiting === many);
    open();
    const [entry] = await small;
    assert.ok(entry && isSandbox(entry));
    const begun = runtime.registry.all().length;
    assert.ok(begun < 6, `${begun} of ${many} children began before the one`);
    await large;
  }
});

test("a caller with many calls takes turns with one who has a single call", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  const { gate, open } = gated();
  engine.script = (nth) => (nth === 0 ? { gate } : {});
  const calls = Array.from({ length: many }, () => forkAs(runtime, "busy", 1));
  await until("the first child is on its way", () => engine.starting === 1);
  await until("all calls wait", () => runtime.starts.waiting === many - 1);
  const single = forkAs(runtime, "single", 3);
  await until("this one too", () => runtime.starts.waiting === many + 2);
  open();
  await Promise.all([...calls, single]);
  assert.deepEqual(order(runtime).slice(0, 7), [
    "busy",
    "busy",
    "single",
    "busy",
    "single",
    "busy",
    "single",
  ]);
});

test("a resume does not wait for all children of a large call", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  const [entry] = await forkAs(runtime, "one", 1);
  assert.ok(entry && isSandbox(entry));
  await pause(runtime, { id: entry.id }, context);
  const { gate, open } = gated();
  engine.script = (nth) => (nth === 1 ? { gate } : {});
  const large = forkAs(runtime, "large", many);
  await until("the first child is on its way", () => engine.starting === 1);
  const resumed = resume(runtime, { id: entry.id }, { ...context, caller: { name: "one" } });
  await until("it waits too", () => runtime.starts.waiting === many);
  open();
  await resumed;
  assert.ok(runtime.registry.all().length < 7, "most children came first");
  await large;
});

test("a caller that goes away gives its places back at once, and leaves nothing", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  const { gate, open } = gated();
  engine.script = (nth) => (nth === 0 ? { gate } : {});
  const stays = forkAs(runtime, "stays", 1);
  await until("a child is on its way", () => engine.starting === 1);
  const abort = new AbortController();
  const goes = forkAs(runtime, "goes", many, abort.signal);
  await until("the others wait", () => runtime.starts.waiting === many);
  abort.abort(new Error("gone"));
  await rejectsWith(goes, "cancelled", /its children were removed/);
  assert.equal(runtime.admission.pending, 1, "only the child that is on its way has a place");
  open();
  const [entry] = await stays;
  assert.ok(entry && isSandbox(entry));
  assert.equal(engine.asked, 1, "nothing was started for the one who went");
  await assertOnly(fixture, [entry.id]);
});
