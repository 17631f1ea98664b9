import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { AppError, isSandbox } from "@forkd/contract";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { listSnapshots, snapshotInfo } from "../../src/operations/list-snapshots.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import { usableSnapshot } from "../../src/snapshots/usable-snapshot.ts";
import { branchRequest, openSource, type Source } from "../branch-source.ts";
import { captureSteps, type CaptureStep, type Script } from "../fakes/engine.ts";
import {
  assertOnly,
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  until,
  type TestRuntime,
} from "../support.ts";

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
  const from = await openSource(t);
  const { runtime, sandbox, engine } = from;
  const result = await branch(runtime, branchRequest(sandbox.id, { tag: "b", n: 2 }), context);
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
    "precopy",
    "pause",
    "save",
    "take",
    "freeze",
    "save",
    "resume",
    "write",
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
  const from = await openSource(t, { deviceStates: ["a", "b", "b", "c", "c"] });
  await branch(from.runtime, branchRequest(from.sandbox.id, { tag: "b" }), context);
  assert.equal(from.machine.steps.filter((step) => step === "take").length, 3);
  assert.equal(await readFile(join(from.runtime.store.root, "b", "devices"), "utf8"), "c");
});

/** Only a branch with all of the memory applies the captured pages to a file. */
function requestFor({ sandbox }: Source, step: CaptureStep) {
  return branchRequest(sandbox.id, { tag: "b", ...(step === "apply" && { mode: "full" as const }) });
}

for (const step of captureSteps.filter((each) => each !== "resume")) {
  test(`branch() that fails at "${step}" leaves a running source and nothing else`, async (t) => {
    const script: Script = { fail: { step, error: new Error(`no ${step}`) } };
    const from = await openSource(t, script);
    await assert.rejects(branch(from.runtime, requestFor(from, step), context), /no /);
    await assertUndone(from, "b");
    delete script.fail;
    assert.equal(
      (await branch(from.runtime, branchRequest(from.sandbox.id, { tag: "b" }), context)).status,
      "ready",
    );
  });

  test(`branch() of a machine that dies at "${step}" leaves nothing`, async (t) => {
    const script: Script = {};
    const from = await openSource(t, script);
    script.onStep = (at: CaptureStep) => {
      if (at === step) from.machine.die("killed");
    };
    script.fail = { step, error: new AppError("engine_failed", "QEMU ended") };
    // A complete capture does not need the machine any more, so its end does not explain the failure.
    const [code, message] =
      step === "write" || step === "apply"
        ? (["engine_failed", /QEMU ended/] as const)
        : (["sandbox_dead", /it is dead \(killed\)/] as const);
    const branching = branch(from.runtime, requestFor(from, step), context);
    await rejectsWith(branching, code, message);
    await until("the sandbox is dead", () => from.sandbox.isDead);
    assert.deepEqual(await drafts(from), []);
    assert.equal(from.machine.openCaptures, 0);
  });
}

test("branch() reports a full disk as such", async (t) => {
  const error = Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
  const from = await openSource(t, { fail: { step: "write", error } });
  await assert.rejects(branch(from.runtime, branchRequest(from.sandbox.id, { tag: "b" }), context), {
    code: "ENOSPC",
  });
  await assertUndone(from, "b");
});

test("branch() without waiting: writing, then ready; unusable in between", async (t) => {
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  const from = await openSource(t, { onStep: (step) => (step === "write" ? gate : undefined) });
  const { runtime, sandbox } = from;
  const early = await branch(runtime, branchRequest(sandbox.id, { tag: "b", wait: false }), context);
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
    branch(runtime, branchRequest(sandbox.id, { tag: "b" }), context),
    "snapshot_writing",
    /still being/,
  );
  open();
  await until("it is ready", async () => (await listSnapshots(runtime))[0]?.status === "ready");
  assert.equal((await fork(runtime, forkRequest({ snapshot_tag: "b" }), context)).length, 1);
});

test("branch() without waiting that fails is shown in the list, and its tag can be used again", async (t) => {
  const script: Script = { fail: { step: "write", error: new Error("no space for it") } };
  const from = await openSource(t, script);
  const { runtime, sandbox } = from;
  assert.equal(
    (await branch(runtime, branchRequest(sandbox.id, { tag: "b", wait: false }), context)).status,
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
  assert.equal((await branch(runtime, branchRequest(sandbox.id, { tag: "b" }), context)).status, "ready");
});

test("branch() stops and undoes everything when its caller goes away", async (t) => {
  const abort = new AbortController();
  const from = await openSource(t, { onStep: (step) => void (step === "write" && abort.abort()) });
  await assert.rejects(
    branch(from.runtime, branchRequest(from.sandbox.id, { tag: "b" }), { ...context, signal: abort.signal }),
  );
  await assertUndone(from, "b");
});

test("branch() refuses what cannot work, and pauses nobody", async (t) => {
  const from = await openSource(t, {}, { branchConcurrency: 1 });
  const { runtime, sandbox } = from;
  await rejectsWith(
    branch(runtime, branchRequest(sandbox.id, { tag: "py" }), context),
    "snapshot_exists",
    /taken/,
  );
  await rejectsWith(
    branch(runtime, branchRequest(sandbox.id, { parent_tag: "other" }), context),
    "invalid_request",
    /runs from "py"/,
  );
  runtime.branches.open({ tag: "x", sandbox: "other", mode: "live", startedAt: 0 });
  await rejectsWith(branch(runtime, branchRequest(sandbox.id), context), "capacity_exhausted", /limit is 1/);
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
  await Promise.all([branch(runtime, branchRequest(a), context), branch(runtime, branchRequest(a), context)]);
  assert.equal(most, 1);
  most = 0;
  await Promise.all([branch(runtime, branchRequest(a), context), branch(runtime, branchRequest(b), context)]);
  assert.equal(most, 2);
});

test("branch() refuses a source whose snapshot is gone", async (t) => {
  const from = await openSource(t);
  await removeSnapshot(from.runtime, { tag: "py", force: true });
  await rejectsWith(
    branch(from.runtime, branchRequest(from.sandbox.id), context),
    "snapshot_not_found",
    /removed or replaced/,
  );
  assert.deepEqual(from.machine.steps, []);
});

test("removeSnapshot() refuses to orphan, and cascades leaf first", async (t) => {
  const { runtime, sandbox } = await openSource(t);
  await branch(runtime, branchRequest(sandbox.id, { tag: "b" }), context);
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
