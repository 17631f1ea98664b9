import assert from "node:assert/strict";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { isSandbox } from "@forkd/contract";
import { nullLogger, removeTree } from "@forkd/base";
import { fork } from "../src/operations/fork.ts";
import { pause, resume } from "../src/operations/pause.ts";
import {
  createWorkspace,
  deleteWorkspace,
  getWorkspace,
  listWorkspaces,
  resumeWorkspace,
  suspendWorkspace,
} from "../src/operations/workspaces.ts";
import { HeldImages } from "../src/held-images.ts";
import { openStore, Runtime } from "../src/open-runtime.ts";
import { reapStrays } from "../src/reap.ts";
import { restoreSandboxes } from "../src/sandbox/restore.ts";
import { FakeEngine } from "./fakes/engine.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, tscKhz, type TestRuntime } from "./support.ts";

/** What a daemon does that follows another on the same directories. */
async function follow(t: TestContext, { config }: TestRuntime): Promise<TestRuntime> {
  await reapStrays(config, nullLogger());
  const engine = new FakeEngine();
  const images = new HeldImages();
  const store = await openStore(config, images, nullLogger());
  const accelerator = { accelerator: "tcg", reason: "a test" } as const;
  const runtime = new Runtime({ config, log: nullLogger(), engine, store, accelerator, tscKhz, images });
  t.after(() => runtime[Symbol.asyncDispose]());
  await restoreSandboxes(runtime);
  return { runtime, engine, config };
}

async function forkOne({ runtime }: TestRuntime): Promise<string> {
  const request = forkRequest({
    env: { A: "1" },
    labels: { job: "x" },
    limits: { memory_mib: 64, best_effort: true },
    idle_timeout_secs: 600,
    on_timeout: "pause",
    auto_resume: true,
  });
  const [entry] = await fork(runtime, request, context);
  assert.ok(entry && isSandbox(entry));
  return entry.id;
}

const workspace = { name: "mine", snapshot_tag: "py", env: {}, labels: {} };

test("a paused sandbox is there after the daemon stopped, with all its facts; a running one is not", async (t) => {
  const first = await forkableRuntime(t);
  const [id, gone] = [await forkOne(first), await forkOne(first)];
  const before = await pause(first.runtime, { id }, context);
  await first.runtime[Symbol.asyncDispose]();
  const second = await follow(t, first);
  assert.equal(second.runtime.registry.find(gone), undefined);
  const { reason: _, ...after } = second.runtime.registry.get(id).info();
  assert.deepEqual(after, { ...before, branch_count: 0 });
  assert.deepEqual([after.limits, after.idle_timeout_secs], [{ memory_mib: 64 }, 600]);
  assert.equal((await resume(second.runtime, { id }, context)).state, "running");
  assert.equal(second.engine.machines[0]?.guest.identity?.hostname, id);
  assert.equal(second.runtime.registry.get(id).env["A"], "1");
});

test("a resumed sandbox whose daemon was killed comes back in the state that was saved", async (t) => {
  const first = await forkableRuntime(t);
  const id = await forkOne(first);
  await pause(first.runtime, { id }, context);
  await resume(first.runtime, { id }, context);
  const second = await follow(t, first);
  assert.equal(second.runtime.registry.get(id).state, "paused");
  assert.deepEqual((await readdir(join(first.config.dataDir, "sandboxes", id))).sort(), [
    "sandbox.json",
    "state-0",
  ]);
  await resume(second.runtime, { id }, context);
  await pause(second.runtime, { id }, context);
});

test("a record or a state that cannot be read costs one sandbox, is kept, and is told", async (t) => {
  const first = await forkableRuntime(t);
  const ids = [await forkOne(first), await forkOne(first), await forkOne(first)];
  for (const id of ids) await pause(first.runtime, { id }, context);
  await first.runtime[Symbol.asyncDispose]();
  const [good = "", noRecord = "", noState = ""] = ids;
  const home = (id: string) => join(first.config.dataDir, "sandboxes", id);
  await writeFile(join(home(noRecord), "sandbox.json"), "{");
  await removeTree(join(home(noState), "state-0", "manifest.json"));
  const { runtime } = await follow(t, first);
  assert.equal(runtime.registry.get(good).state, "paused");
  assert.equal(runtime.registry.find(noRecord), undefined);
  assert.ok((await readdir(home(noRecord))).includes("state-0"), "nothing of it is removed");
  assert.match(runtime.registry.get(noState).info().reason ?? "", /cannot be used/);
  await rejectsWith(resume(runtime, { id: noState }, context), "snapshot_corrupt", /manifest is missing/);
});

test("a workspace is suspended when the daemon stops, stale when it was killed before", async (t) => {
  const first = await forkableRuntime(t);
  const made = await createWorkspace(first.runtime, workspace, context);
  assert.equal(made.status, "running");
  await rejectsWith(
    (async () => createWorkspace(first.runtime, workspace, context))(),
    "already_exists",
    /name is taken/,
  );
  const stale = await follow(t, first);
  assert.equal(getWorkspace(stale.runtime, { name: "mine" }).status, "stale");
  const again = await resumeWorkspace(stale.runtime, { name: "mine" }, context);
  assert.deepEqual([again.status, again.id], ["running", made.id]);
  await stale.runtime[Symbol.asyncDispose]();
  const third = await follow(t, first);
  assert.equal(getWorkspace(third.runtime, { name: "mine" }).status, "suspended");
  await resumeWorkspace(third.runtime, { name: "mine" }, context);
  assert.equal((await suspendWorkspace(third.runtime, { name: "mine" }, context)).status, "suspended");
  await deleteWorkspace(third.runtime, { name: "mine" });
  assert.deepEqual(listWorkspaces(third.runtime), []);
  assert.deepEqual(await readdir(join(first.config.dataDir, "sandboxes")), []);
  assert.throws(() => getWorkspace(third.runtime, { name: "mine" }), { code: "workspace_not_found" });
});
