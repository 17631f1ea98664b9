import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { AppError, isSandbox, type BranchRequest } from "@forkd/contract";
import { maxChainDepth } from "@forkd/store";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { listSnapshots, snapshotInfo } from "../../src/operations/list-snapshots.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import type { Sandbox } from "../../src/sandbox/sandbox.ts";
import { captureSteps, type CaptureStep, type FakeMachine, type Script } from "../fakes/engine.ts";
import { usableSnapshot } from "../../src/snapshots/usable-snapshot.ts";
import { follow } from "../restart.ts";
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

function request(id: string, some: Partial<BranchRequest> = {}): BranchRequest {
  return { id, wait: true, n: 0, vary: [], env: {}, labels: {}, ...some };
}

type Source = TestRuntime & { sandbox: Sandbox; machine: FakeMachine };

async function source(t: TestContext, script: Script = {}, settings = {}): Promise<Source> {
  const fixture = await forkableRuntime(t, settings);
  const { runtime, engine } = fixture;
  engine.script = (nth) => (nth === 0 ? script : {});
  const [entry] = await fork(runtime, forkRequest({ env: { A: "1" } }), context);
  assert.ok(entry && isSandbox(entry));
  const [machine] = engine.machines;
  assert.ok(machine);
  return { ...fixture, sandbox: runtime.registry.get(entry.id), machine };
}

async function drafts({ runtime, config }: TestRuntime): Promise<string[]> {
  const names = await readdir(runtime.store.root);
  const cached = await readdir(join(config.dataDir, "cache", "memory"));
  return [...names, ...cached].filter((name) => name.startsWith("."));
}

/** The source runs, nothing of the branch is left, and another branch works. */
async function assertUndone(from: Source, tag: string): Promise<void> {
  assert.equal(from.machine.isPaused, false, "the source runs");
  assert.equal(from.machine.openCaptures, 0, "captured pages are released");
  assert.deepEqual(await drafts(from), []);
  assert.equal(from.runtime.branches.all.length, 0);
  await rejectsWith(usableSnapshot(from.runtime, tag), "snapshot_not_found", /Cannot find/);
  await assertOnly(from, [from.sandbox.id]);
}

test("branch() makes a layer over the source's snapshot, and children that continue from it", async (t) => {
  const from = await source(t);
  const { runtime, sandbox, engine } = from;
  const result = await branch(runtime, request(sandbox.id, { tag: "b", n: 2 }), context);
  assert.equal(result.status, "ready");
  assert.equal(result.parent_tag, "py");
  assert.equal(result.branched_from, sandbox.id);
  assert.equal(result.diff_logical_bytes, 4096);
  assert.equal(result.children.filter(isSandbox).length, 2);
  assert.ok(result.pause_ms > 0 && result.resumed_ms >= result.pause_ms);
  assert.equal(engine.machines[0]?.isPaused, false);
  assert.deepEqual(from.machine.steps, [
    "prepare",
    "arm",
    "pause",
    "save",
    "take",
    "freeze",
    "save",
    "resume",
    "write",
    "apply",
  ]);
  const snapshot = await runtime.store.get("b");
  const flat = await readFile(await runtime.store.flatMemory(snapshot));
  assert.deepEqual(flat.subarray(3 * 4096, 4 * 4096), Buffer.alloc(4096, 7));
  assert.equal(flat.toString("latin1", 0, 6), "memory");
  assert.deepEqual(snapshot.manifest.env, { A: "1" }, "children inherit the variables of the source");
  assert.equal(snapshot.manifest.files.disks.length, 2);
  const detail = await snapshotInfo(runtime, { tag: "b" });
  assert.deepEqual([detail.chain_depth, detail.ancestors, detail.sandboxes.length], [1, ["py"], 2]);
});

test("branch() takes memory again when the devices moved under it", async (t) => {
  const from = await source(t, { deviceStates: ["a", "b", "b", "c", "c"] });
  await branch(from.runtime, request(from.sandbox.id, { tag: "b" }), context);
  assert.equal(from.machine.steps.filter((step) => step === "take").length, 3);
  assert.equal(await readFile(join(from.runtime.store.root, "b", "devices"), "utf8"), "c");
});

for (const step of captureSteps.filter((each) => each !== "resume")) {
  test(`branch() that fails at "${step}" leaves a running source and nothing else`, async (t) => {
    const script: Script = { fail: { step, error: new Error(`no ${step}`) } };
    const from = await source(t, script);
    await assert.rejects(branch(from.runtime, request(from.sandbox.id, { tag: "b" }), context), /no /);
    await assertUndone(from, "b");
    delete script.fail;
    assert.equal(
      (await branch(from.runtime, request(from.sandbox.id, { tag: "b" }), context)).status,
      "ready",
    );
  });

  test(`branch() of a machine that dies at "${step}" leaves nothing`, async (t) => {
    const script: Script = {};
    const from = await source(t, script);
    script.onStep = (at: CaptureStep) => {
      if (at === step) from.machine.die("killed");
    };
    script.fail = { step, error: new AppError("engine_failed", "QEMU ended") };
    // A complete capture does not need the machine any more, so its end does not explain the failure.
    const [code, message] =
      step === "write" || step === "apply"
        ? (["engine_failed", /QEMU ended/] as const)
        : (["sandbox_dead", /it is dead \(killed\)/] as const);
    const branching = branch(from.runtime, request(from.sandbox.id, { tag: "b" }), context);
    await rejectsWith(branching, code, message);
    await until("the sandbox is dead", () => from.sandbox.isDead);
    assert.deepEqual(await drafts(from), []);
    assert.equal(from.machine.openCaptures, 0);
  });
}

test("branch() reports a full disk as such", async (t) => {
  const error = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
  const from = await source(t, { fail: { step: "write", error } });
  await assert.rejects(branch(from.runtime, request(from.sandbox.id, { tag: "b" }), context), {
    code: "ENOSPC",
  });
  await assertUndone(from, "b");
});

test("branch() without waiting: writing, then ready; unusable in between", async (t) => {
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  const from = await source(t, { onStep: (step) => (step === "write" ? gate : undefined) });
  const { runtime, sandbox } = from;
  const early = await branch(runtime, request(sandbox.id, { tag: "b", wait: false }), context);
  assert.equal(early.status, "writing");
  assert.equal(from.machine.isPaused, false);
  const listed = await listSnapshots(runtime);
  assert.deepEqual(
    listed.map(({ tag, status }) => [tag, status]),
    [
      ["b", "writing"],
      ["py", "ready"],
    ],
  );
  await rejectsWith(
    fork(runtime, forkRequest({ snapshot_tag: "b" }), context),
    "snapshot_writing",
    /still being/,
  );
  await rejectsWith(removeSnapshot(runtime, { tag: "b" }), "snapshot_writing", /still being/);
  await rejectsWith(
    branch(runtime, request(sandbox.id, { tag: "b" }), context),
    "snapshot_writing",
    /still being/,
  );
  open();
  await until("it is ready", async () => (await listSnapshots(runtime))[0]?.status === "ready");
  assert.equal((await fork(runtime, forkRequest({ snapshot_tag: "b" }), context)).length, 1);
});

test("branch() without waiting that fails is shown in the list, and its tag can be used again", async (t) => {
  const script: Script = { fail: { step: "write", error: new Error("no space for it") } };
  const from = await source(t, script);
  const { runtime, sandbox } = from;
  assert.equal(
    (await branch(runtime, request(sandbox.id, { tag: "b", wait: false }), context)).status,
    "writing",
  );
  await until("it has failed", async () => (await listSnapshots(runtime))[0]?.status === "failed");
  const [failed] = await listSnapshots(runtime);
  assert.match(failed?.warning ?? "", /no space for it/);
  assert.equal(failed?.branched_from, sandbox.id);
  await rejectsWith(
    fork(runtime, forkRequest({ snapshot_tag: "b" }), context),
    "snapshot_failed",
    /no space/,
  );
  delete script.fail;
  assert.equal((await branch(runtime, request(sandbox.id, { tag: "b" }), context)).status, "ready");
});

test("branch() stops and undoes everything when its caller goes away", async (t) => {
  const abort = new AbortController();
  const from = await source(t, { onStep: (step) => void (step === "write" && abort.abort()) });
  await assert.rejects(
    branch(from.runtime, request(from.sandbox.id, { tag: "b" }), { ...context, signal: abort.signal }),
  );
  await assertUndone(from, "b");
});

test("branch() refuses what cannot work, and pauses nobody", async (t) => {
  const from = await source(t, {}, { branchConcurrency: 1 });
  const { runtime, sandbox } = from;
  await rejectsWith(branch(runtime, request(sandbox.id, { tag: "py" }), context), "snapshot_exists", /taken/);
  await rejectsWith(
    branch(runtime, request(sandbox.id, { parent_tag: "other" }), context),
    "invalid_request",
    /runs from "py"/,
  );
  runtime.branches.open({ tag: "x", sandbox: "other", mode: "live", startedAt: 0 });
  await rejectsWith(branch(runtime, request(sandbox.id), context), "capacity_exhausted", /limit is 1/);
  assert.deepEqual(from.machine.steps, []);
});

test("branch() of one sandbox waits for the one before; branches of two run side by side", async (t) => {
  let inside = 0;
  let most = 0;
  const onStep = async (step: CaptureStep) => {
    if (step === "pause") most = Math.max(most, ++inside);
    if (step === "resume") inside--;
    if (step === "save") await new Promise((resolve) => setTimeout(resolve, 20));
  };
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  engine.script = () => ({ onStep });
  const entries = (await fork(runtime, forkRequest({ n: 2 }), context)).filter(isSandbox);
  const [a, b] = entries.map(({ id }) => id);
  assert.ok(a && b);
  await Promise.all([branch(runtime, request(a), context), branch(runtime, request(a), context)]);
  assert.equal(most, 1);
  most = 0;
  await Promise.all([branch(runtime, request(a), context), branch(runtime, request(b), context)]);
  assert.equal(most, 2);
});

test("branch() refuses a source whose snapshot is gone", async (t) => {
  const from = await source(t);
  await removeSnapshot(from.runtime, { tag: "py", force: true });
  await rejectsWith(
    branch(from.runtime, request(from.sandbox.id), context),
    "snapshot_not_found",
    /removed or replaced/,
  );
  assert.deepEqual(from.machine.steps, []);
});

/** Branches and rewinds until the chain of the sandbox has as many snapshots as are allowed. */
async function deepen({ runtime, sandbox }: Source): Promise<void> {
  for (let depth = 2; depth <= maxChainDepth; depth++) {
    const tag = `deep${depth}`;
    await branch(runtime, request(sandbox.id, { tag }), context);
    await rewind(runtime, { id: sandbox.id, to: tag }, context);
  }
}

test("a sandbox whose chain is at its limit is branched, paused and resumed with all of its memory", async (t) => {
  const from = await source(t);
  const { runtime, sandbox } = from;
  await deepen(from);
  const made = await branch(runtime, request(sandbox.id, { tag: "whole", mode: "diff" }), context);
  assert.equal(made.mode, "full", "the result says how it was saved");
  assert.equal(made.parent_tag, undefined);
  for (let round = 0; round < 2; round++) {
    assert.equal((await pause(runtime, { id: sandbox.id }, context)).state, "paused");
    assert.ok(sandbox.saved?.snapshot.manifest.files.memory, "all of the memory is in the saved state");
    assert.equal((await resume(runtime, { id: sandbox.id }, context)).state, "running");
  }
  const again = await branch(runtime, request(sandbox.id, { tag: "again" }), context);
  assert.equal(again.mode, "full", "a saved state cannot be the parent of a layer");
  await rewind(runtime, { id: sandbox.id, to: "again" }, context);
  const shallow = await branch(runtime, request(sandbox.id, { tag: "shallow" }), context);
  assert.equal(shallow.parent_tag, "again", "the chain begins again");
});

test("pause() and resume() keep id and identity; what fails changes nothing", async (t) => {
  const script: Script = { fail: { step: "write", error: new Error("no write") } };
  const from = await source(t, script);
  const { runtime, sandbox, engine } = from;
  const { id } = sandbox;
  await assert.rejects(pause(runtime, { id }, context), /no write/);
  assert.equal(sandbox.state, "running");
  assert.equal(from.machine.isPaused, false);
  delete script.fail;
  const identity = engine.machines[0]?.guest.identity;
  const paused = await pause(runtime, { id }, context);
  assert.equal(paused.state, "paused");
  assert.ok(from.machine.disposals > 0);
  assert.throws(() => sandbox.agent, { code: "sandbox_paused" });
  assert.equal((await pause(runtime, { id }, context)).state, "paused", "again changes nothing");
  engine.script = () => ({ failStart: "no start" });
  await assert.rejects(resume(runtime, { id }, context), /no start/);
  assert.equal(sandbox.state, "paused");
  engine.script = () => ({});
  assert.equal((await resume(runtime, { id }, context)).state, "running");
  const after = engine.machines.at(-1)?.guest.identity;
  assert.equal(after?.hostname, identity?.hostname);
  assert.equal(after?.machineId, identity?.machineId);
  assert.notEqual(after?.entropy, identity?.entropy);
  // A second time: the saved state is one layer over "py", never a layer over a layer.
  await pause(runtime, { id }, context);
  assert.equal(sandbox.saved?.snapshot.manifest.parent?.tag, "py");
  await rejectsWith(removeSnapshot(runtime, { tag: "py" }), "snapshot_in_use", /orphaned/);
  await resume(runtime, { id }, context);
  const made = await branch(runtime, request(id, { tag: "b" }), context);
  assert.equal(made.parent_tag, "py");
});

test("a machine that dies after a resume leaves a sandbox that can be resumed again", async (t) => {
  const { runtime, sandbox, engine } = await source(t);
  await pause(runtime, { id: sandbox.id }, context);
  await resume(runtime, { id: sandbox.id }, context);
  engine.machines.at(-1)?.die("killed from outside");
  await until("it has fallen back", () => sandbox.state === "paused");
  assert.match(sandbox.info().reason ?? "", /killed from outside/);
  assert.equal((await resume(runtime, { id: sandbox.id }, context)).state, "running");
});

test("rewind() goes to ancestors and own branches only, and keeps the machine it has if that fails", async (t) => {
  const { runtime, sandbox, engine, machine } = await source(t);
  const { id } = sandbox;
  await branch(runtime, request(id, { tag: "b", n: 1 }), context);
  const child = runtime.registry.all().find((each) => each.id !== id);
  assert.ok(child);
  engine.script = () => ({ failStart: "no start" });
  await assert.rejects(rewind(runtime, { id, to: "b" }, context), /no start/);
  assert.equal(sandbox.machine, machine);
  engine.script = () => ({});
  assert.equal((await rewind(runtime, { id, to: "b" }, context)).snapshot_tag, "b");
  assert.ok(machine.disposals > 0);
  assert.equal((await rewind(runtime, { id: child.id, to: "py" }, context)).snapshot_tag, "py");
  await branch(runtime, request(child.id, { tag: "c" }), context);
  await rejectsWith(rewind(runtime, { id, to: "c" }, context), "wrong_state", /neither an ancestor/);
});

test("removeSnapshot() refuses to orphan, and cascades leaf first", async (t) => {
  const { runtime, sandbox } = await source(t);
  await branch(runtime, request(sandbox.id, { tag: "b" }), context);
  await runtime.registry.remove(sandbox.id);
  await rejectsWith(removeSnapshot(runtime, { tag: "py" }), "snapshot_in_use", /b would be orphaned/);
  const would = await removeSnapshot(runtime, { tag: "py", cascade: true, dry_run: true });
  assert.deepEqual(would.removed, [{ tag: "b" }, { tag: "py" }]);
  assert.deepEqual(
    (await listSnapshots(runtime)).map(({ tag }) => tag),
    ["b", "py"],
  );
  // The root file system that both share is freed only by removing both.
  const sizes = (await listSnapshots(runtime)).map(({ own_bytes: own }) => own);
  assert.ok(would.freed_bytes > sizes.reduce((sum, own) => sum + own, 0));
  const removed = await removeSnapshot(runtime, { tag: "py", cascade: true });
  assert.deepEqual(removed, { ...would, dry_run: false });
  assert.deepEqual(await listSnapshots(runtime), []);
  const gone = { tag: "py", dry_run: true };
  await rejectsWith(removeSnapshot(runtime, gone), "snapshot_not_found", /Cannot find/);
});

test("rewind() goes back to where the sandbox once was, also after a restart and a pause of all memory", async (t) => {
  const from = await source(t);
  const { runtime, sandbox } = from;
  const { id } = sandbox;
  await branch(runtime, request(id, { tag: "step1" }), context);
  const [child] = await fork(runtime, forkRequest({ snapshot_tag: "step1" }), context);
  assert.ok(child && isSandbox(child));
  await rewind(runtime, { id: child.id, to: "py" }, context);
  assert.equal((await rewind(runtime, { id: child.id, to: "step1" }, context)).snapshot_tag, "step1");
  await rewind(runtime, { id: child.id, to: "py" }, context);
  await deepen(from);
  await pause(runtime, { id }, context);
  assert.ok(sandbox.saved?.snapshot.manifest.files.memory);

  const second = await follow(t, from);
  await rewind(second.runtime, { id: child.id, to: "step1" }, context);
  await rewind(second.runtime, { id, to: "py" }, context);
  assert.equal((await rewind(second.runtime, { id, to: "deep9" }, context)).state, "running");
  await addSnapshot(second.runtime.store, "other", facts({ X: "1" }));
  await rejectsWith(rewind(second.runtime, { id, to: "other" }, context), "wrong_state", /never been there/);
});

test("rewind() of a dead sandbox starts it again with the same id, also after a restart", async (t) => {
  const from = await source(t);
  const { runtime, sandbox, machine, config } = from;
  const { id } = sandbox;
  await branch(runtime, request(id, { tag: "safe" }), context);
  await rewind(runtime, { id, to: "safe" }, context);
  from.engine.machines.at(-1)?.die("out of luck");
  await until("it is dead and its files are gone", () => !runtime.places.has(id));
  assert.ok(machine.hasEnded || sandbox.isDead);
  const both = await Promise.allSettled([
    rewind(runtime, { id, to: "safe" }, context),
    rewind(runtime, { id, to: "safe" }, context),
  ]);
  assert.equal(both.filter(({ status }) => status === "fulfilled").length, 1, "one of two at once wins");
  const again = runtime.registry.get(id);
  assert.equal(again.state, "running");
  assert.deepEqual(again.facts.identity, sandbox.facts.identity);
  assert.deepEqual(again.facts.env, { A: "1" });
  await assertOnly(from, [id]);

  from.engine.machines.at(-1)?.die("out of luck again");
  await until("it is dead and its files are gone", () => !runtime.places.has(id));
  const second = await follow(t, from);
  const listed = second.runtime.registry.get(id).info();
  assert.deepEqual([listed.state, listed.vcpus, listed.memory_mib], ["dead", 1, 1]);
  assert.match(listed.reason ?? "", /out of luck again/);
  assert.equal((await rewind(second.runtime, { id, to: "py" }, context)).state, "running");
  assert.ok(existsSync(join(config.dataDir, "sandboxes", id, "sandbox.json")));

  const third = await follow(t, second);
  assert.equal(third.runtime.registry.get(id).state, "running");
});
