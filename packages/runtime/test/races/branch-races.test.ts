/**
 * What happens to a sandbox while it is branched or paused: killed, rewound, expired, its snapshot removed.
 */
import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { AppError, isSandbox, type BranchRequest } from "@forkd/contract";
import { removeTree } from "@forkd/base";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { setTimeouts } from "../../src/operations/timeouts.ts";
import { gc } from "../../src/operations/gc.ts";
import { listSnapshots } from "../../src/operations/list-snapshots.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import { createWorkspace, getWorkspace } from "../../src/operations/workspaces.ts";
import type { Script } from "../fakes/engine.ts";
import { usableSnapshot } from "../../src/snapshots/usable-snapshot.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, until, type TestRuntime } from "../support.ts";

function request(id: string, some: Partial<BranchRequest> = {}): BranchRequest {
  return { id, wait: true, n: 0, vary: [], env: {}, labels: {}, ...some };
}

type Source = TestRuntime & { id: string };

async function source(t: TestContext, script: (nth: number) => Script, settings = {}): Promise<Source> {
  const fixture = await forkableRuntime(t, settings);
  fixture.engine.script = script;
  const [entry] = await fork(fixture.runtime, forkRequest(), context);
  assert.ok(entry && isSandbox(entry));
  return { ...fixture, id: entry.id };
}

function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

for (const what of ["rewound", "killed", "paused"] as const) {
  test(`a branch of a resumed sandbox holds what was saved before, also when the sandbox is ${what} meanwhile`, async (t) => {
    const { opened, open } = gate();
    let isHeld = false;
    const { runtime, id } = await source(t, (nth) => ({
      page: 3 + nth,
      onStep: (step) => (nth === 1 && step === "write" && isHeld ? opened : undefined),
    }));
    await pause(runtime, { id }, context);
    await resume(runtime, { id }, context);
    isHeld = true;
    const early = await branch(runtime, request(id, { tag: "b", wait: false }), context);
    assert.equal(early.parent_tag, "py");
    isHeld = false;
    if (what === "rewound") await rewind(runtime, { id, to: "py" }, context);
    else if (what === "killed") await runtime.registry.remove(id);
    else await pause(runtime, { id }, context);
    open();
    await until("it is ready", async () => (await listSnapshots(runtime))[0]?.status === "ready");
    const snapshot = await runtime.store.get("b");
    assert.equal(snapshot.manifest.parent?.tag, "py");
    await gc(runtime, { dry_run: false });
    const flat = await readFile(await runtime.store.flatMemory(snapshot));
    // One page of each machine that it had.
    assert.deepEqual(flat.subarray(3 * 4096, 5 * 4096), Buffer.alloc(2 * 4096, 7));
  });
}

test("a time to live ends only a running sandbox, and starts again with each machine", async (t) => {
  const { runtime, id, engine } = await source(t, () => ({}));
  const sandbox = runtime.registry.get(id);
  await setTimeouts(runtime, { id, ttl_secs: 2 });
  await pause(runtime, { id }, context);
  assert.equal(sandbox.info().expires_at_unix, undefined);
  await new Promise((resolve) => setTimeout(resolve, 2200));
  const resumedAt = Date.now() / 1000;
  assert.equal((await resume(runtime, { id }, context)).state, "running");
  assert.ok((sandbox.expiresAt ?? 0) >= resumedAt + 2);
  engine.machines.at(-1)?.die("killed");
  await until("it has fallen back", () => sandbox.state === "paused");
  await new Promise((resolve) => setTimeout(resolve, 2200));
  assert.equal(runtime.registry.get(id).state, "paused");
  await setTimeouts(runtime, { id, ttl_secs: null });
  await resume(runtime, { id }, context);
  assert.equal(sandbox.expiresAt, undefined);
});

for (const step of ["arm", "take", "resume", "write"] as const) {
  test(`a sandbox that is killed while it is paused, at "${step}", is gone for good`, async (t) => {
    let kill: Promise<void> | undefined;
    const script: Script = {};
    const { runtime, id, config } = await source(t, () => script);
    script.onStep = (at) => {
      if (at === step) kill ??= runtime.registry.remove(id);
    };
    const paused = pause(runtime, { id }, context).then(
      ({ state }) => state,
      (error: { code?: string }) => error.code,
    );
    const outcome = await paused;
    // At "resume" the pause has been done already.
    assert.ok(outcome === "sandbox_dead" || (step === "resume" && outcome === "dead"), String(outcome));
    kill ??= runtime.registry.find(id) ? runtime.registry.remove(id) : undefined;
    await kill;
    await until("its home is gone", async () => {
      return !(await readdir(join(config.dataDir, "sandboxes"))).includes(id);
    });
    assert.equal(runtime.places.size, 0);
  });
}

test("a branch in progress protects its parent; removing the parent by force fails the branch", async (t) => {
  const { opened, open } = gate();
  const { runtime, id } = await source(t, () => ({
    onStep: (step) => (step === "write" ? opened : undefined),
  }));
  await branch(runtime, request(id, { tag: "b", wait: false }), context);
  await runtime.registry.remove(id);
  await rejectsWith(removeSnapshot(runtime, { tag: "py" }), "snapshot_in_use", /b would be orphaned/);
  await removeSnapshot(runtime, { tag: "py", force: true });
  open();
  await until("it has failed", async () => (await listSnapshots(runtime))[0]?.status === "failed");
  assert.match((await listSnapshots(runtime))[0]?.warning ?? "", /parent "py" was removed/);
});

test("branch() asks for room before it pauses anybody, and gives it back", async (t) => {
  const { runtime, id, engine } = await source(t, () => ({}), { maxSandboxes: 2 });
  await rejectsWith(
    branch(runtime, request(id, { tag: "b", n: 2 }), context),
    "capacity_exhausted",
    /limit is 2/,
  );
  assert.deepEqual(engine.machines[0]?.steps, []);
  const made = await branch(runtime, request(id, { tag: "b", n: 1 }), context);
  assert.equal(made.children.length, 1);
  assert.equal(runtime.admission.pending, 0);
  await rejectsWith(branch(runtime, request(id, { tag: "b", n: 1 }), context), "capacity_exhausted", /limit/);
  assert.equal(runtime.admission.pending, 0);
});

test("branch() whose children all fail gives the snapshot and what went wrong", async (t) => {
  const { runtime, id } = await source(t, (nth) => (nth === 0 ? {} : { failStart: "no start" }));
  const made = await branch(runtime, request(id, { tag: "b", n: 2 }), context);
  assert.equal(made.status, "ready");
  assert.deepEqual(
    made.children.map((child) => isSandbox(child)),
    [false, false],
  );
  assert.equal(runtime.admission.pending, 0);
});

test("gc() does not take an image that a machine maps, nor a snapshot that has a failed one's tag by now", async (t) => {
  const { runtime, id } = await source(t, () => ({}));
  await branch(runtime, request(id, { tag: "b", n: 1 }), context);
  const snapshot = await runtime.store.get("b");
  await gc(runtime, { dry_run: false });
  assert.ok((await readFile(runtime.store.flatPath(snapshot))).length > 0);
  await runtime.store.fail("c", "no reason");
  const collected = gc(runtime, { dry_run: false });
  const made = branch(runtime, request(id, { tag: "c" }), context);
  await Promise.all([collected, made]);
  assert.equal((await usableSnapshot(runtime, "c")).tag, "c");
});

test("pause and resume again and again keep to the limit of the cache", async (t) => {
  const { runtime, id, config } = await source(t, () => ({}), { memoryCacheMib: 1 });
  for (let round = 0; round < 4; round++) {
    await pause(runtime, { id }, context);
    await resume(runtime, { id }, context);
  }
  assert.equal((await readdir(join(config.dataDir, "cache", "memory"))).length, 1);
  assert.deepEqual(
    (await readdir(join(config.dataDir, "sandboxes", id))).filter((name) => name.startsWith("state-")),
    ["state-3"],
  );
});

test("the clock is set after a pause that failed, too", async (t) => {
  const script: Script = { fail: { step: "write", error: new Error("no write") } };
  const { runtime, id, engine } = await source(t, () => script);
  const heard = engine.machines[0]?.guest.heard ?? [];
  await until("the clock was set at birth", () => heard.includes("clock"));
  heard.length = 0;
  await assert.rejects(pause(runtime, { id }, context), /no write/);
  await until("the clock was set", () => heard.includes("clock"));
  assert.equal(runtime.registry.get(id).state, "running");
});

test("a workspace whose machine stops before it was suspended can be started again", async (t) => {
  const { runtime, engine } = await source(t, () => ({}));
  await createWorkspace(runtime, { name: "w", snapshot_tag: "py", env: {}, labels: {} }, context);
  engine.machines.at(-1)?.die("killed");
  await until("it is stale", () => getWorkspace(runtime, { name: "w" }).status === "stale");
  const { id } = getWorkspace(runtime, { name: "w" });
  assert.equal((await resume(runtime, { id }, context)).state, "running");
});

test("a snapshot that is removed in the moment its files are taken is not found", async (t) => {
  const { runtime, id } = await source(t, () => ({}));
  const draftIn = runtime.store.draftIn.bind(runtime.store);
  runtime.store.draftIn = async (...args) => {
    const made = await draftIn(...args);
    await removeTree((await runtime.store.get("py")).dir);
    return made;
  };
  const isCurrent = runtime.store.isCurrent.bind(runtime.store);
  let asked = 0;
  // It was there when it was looked for.
  runtime.store.isCurrent = async (snapshot) => asked++ === 0 || isCurrent(snapshot);
  await rejectsWith(pause(runtime, { id }, context), "snapshot_not_found", /"py": it was removed/);
  assert.equal(runtime.registry.get(id).state, "running");
});

test("a disk layer that cannot be linked is copied after the instant", async (t) => {
  const { runtime, id } = await source(t, () => ({}));
  const draft = runtime.store.draft.bind(runtime.store);
  runtime.store.draft = async (...args) => {
    const made = await draft(...args);
    made.link = async () => false;
    return made;
  };
  await branch(runtime, request(id, { tag: "b" }), context);
  const snapshot = await runtime.store.get("b");
  assert.equal(snapshot.manifest.files.disks.length, 2);
  await runtime.store.verify(snapshot, { always: true });
});

test("a pause whose machine is killed under it says that the sandbox is dead, whatever the engine met", async (t) => {
  const script: Script = {};
  const { runtime, id } = await source(t, () => script);
  script.onStep = (at) => {
    if (at === "take") void runtime.registry.remove(id);
  };
  script.fail = { step: "take", error: new AppError("engine_failed", "QEMU ended: stopped by forkd") };
  await assert.rejects(pause(runtime, { id }, context), { code: "sandbox_dead" });
});

for (const code of ["engine_failed", "agent_unreachable", "host_not_ready"] as const) {
  test(`the end of a machine that looks like ${code} is reported as its end`, async (t) => {
    const script: Script = {};
    const { runtime, id, engine } = await source(t, () => script);
    await pause(runtime, { id }, context);
    await resume(runtime, { id }, context);
    script.fail = { step: "take", error: new AppError(code, "as it happens") };
    script.onStep = (at) =>
      at === "take" ? engine.machines.at(-1)?.die("VMM killed by SIGKILL") : undefined;
    const saved = branch(runtime, request(id, { tag: "a" }), context);
    const { remedy } = await rejectsWith(saved, "sandbox_paused", /VMM killed by SIGKILL.*state is kept/);
    assert.deepEqual(remedy, { action: "resume", id });
    delete script.fail;
    delete script.onStep;
    await rewind(runtime, { id, to: "py" }, context);
    script.fail = { step: "take", error: new AppError(code, "as it happens") };
    await rejectsWith(branch(runtime, request(id, { tag: "b" }), context), code, /as it happens/);
    script.onStep = (at) =>
      at === "take" ? engine.machines.at(-1)?.die("VMM killed by SIGKILL") : undefined;
    await rejectsWith(
      branch(runtime, request(id, { tag: "c" }), context),
      "sandbox_dead",
      /VMM killed by SIGKILL/,
    );
  });
}
