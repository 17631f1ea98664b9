import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { isSandbox } from "@forkd/contract";
import { removeTree } from "@forkd/base";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume } from "../../src/operations/resume.ts";
import { getSandbox, kill, ping } from "../../src/operations/sandboxes.ts";
import { setTimeouts } from "../../src/operations/timeouts.ts";
import {
  createWorkspace,
  deleteWorkspace,
  getWorkspace,
  listWorkspaces,
  resumeWorkspace,
  suspendWorkspace,
} from "../../src/operations/workspaces.ts";
import { Survivors } from "../../src/recovery/survivors.ts";
import { closeSandboxes, saveWorkspaces } from "../../src/sandbox/shutdown.ts";
import { follow, killDaemon } from "../restart.ts";
import {
  assertOnly,
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  until,
  type TestRuntime,
} from "../support.ts";

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

/** Returns the record as it was. */
async function changeRecord(test: TestRuntime, id: string, fields: object): Promise<string> {
  const path = join(homeOf(test, id), "sandbox.json");
  const before = await readFile(path, "utf8");
  await writeFile(path, JSON.stringify({ ...(JSON.parse(before) as object), ...fields }));
  return before;
}

const workspace = { name: "mine", snapshot_tag: "py", env: {}, labels: {} };

const homeOf = ({ config }: TestRuntime, id: string) => join(config.dataDir, "sandboxes", id);

test("a daemon adopts the sandboxes of one that was killed: running ones answer, paused ones can be resumed", async (t) => {
  const first = await forkableRuntime(t);
  const [running, paused] = [await forkOne(first), await forkOne(first)];
  const before = [
    getSandbox(first.runtime, { id: running }),
    await pause(first.runtime, { id: paused }, context),
  ];
  const second = await follow(t, first);
  const after = [running, paused].map((id) => getSandbox(second.runtime, { id }));
  assert.deepEqual(
    after,
    before.map((info) => ({ ...info, ready_ms: 0 })),
  );
  assert.ok((await ping(second.runtime, { id: running })).ok);
  assert.equal((await resume(second.runtime, { id: paused }, context)).state, "running");
  assert.equal(second.engine.machines.at(-1)?.guest.identity?.hostname, paused);
  assert.equal(second.runtime.registry.get(paused).env["A"], "1");
  // Adopted sandboxes can be paused, resumed and killed like any other.
  await pause(second.runtime, { id: running }, context);
  await resume(second.runtime, { id: running }, context);
  for (const id of [running, paused]) await kill(second.runtime, { id });
  await assertOnly(second, []);
});

test("a daemon that stops keeps running sandboxes or ends them, as onStop says", async (t) => {
  const first = await forkableRuntime(t, { onStop: "keep" });
  const id = await forkOne(first);
  await first.runtime[Symbol.asyncDispose]();
  assert.deepEqual(
    first.engine.machines.map(({ wasLeft, hasEnded }) => [wasLeft, hasEnded]),
    [[true, false]],
  );
  const second = await follow(t, first);
  assert.equal(getSandbox(second.runtime, { id }).state, "running");
  second.runtime.work.onStop = "stop";
  await second.runtime[Symbol.asyncDispose]();
  assert.ok(second.engine.machines.at(-1)?.hasEnded);
  await assertOnly(second, []);
});

test("a machine that ended while no daemon ran is reported with its reason and loses what was not saved", async (t) => {
  const first = await forkableRuntime(t);
  const [lost, saved] = [await forkOne(first), await forkOne(first)];
  await pause(first.runtime, { id: saved }, context);
  await resume(first.runtime, { id: saved }, context);
  await createWorkspace(first.runtime, workspace, context);
  await killDaemon(first);
  for (const machine of first.engine.machines) machine.die("gone");
  const second = await follow(t, first);
  const dead = getSandbox(second.runtime, { id: lost });
  assert.deepEqual([dead.state, /ended while no daemon ran/.test(dead.reason ?? "")], ["dead", true]);
  const paused = getSandbox(second.runtime, { id: saved });
  assert.deepEqual([paused.state, /resumed from the state/.test(paused.reason ?? "")], ["paused", true]);
  assert.equal(getWorkspace(second.runtime, { name: "mine" }).status, "stale");
  await until("the dead one is released", async () => !second.runtime.places.has(lost));
  assert.deepEqual((await readdir(homeOf(first, saved))).sort(), ["sandbox.json", "state-0"]);
  await resume(second.runtime, { id: saved }, context);
  const resumed = await resumeWorkspace(second.runtime, { name: "mine" }, context);
  assert.deepEqual([resumed.status, resumed.lost?.since], ["running", "created"]);
  assert.match(resumed.lost?.reason ?? "", /ended while no daemon ran/);
  assert.equal(getWorkspace(second.runtime, { name: "mine" }).lost, undefined, "reported once");
  await suspendWorkspace(second.runtime, { name: "mine" }, context);
  assert.equal((await resumeWorkspace(second.runtime, { name: "mine" }, context)).lost, undefined);
  second.engine.machines.at(-1)?.die("gone again");
  await until("it is suspended", () => getWorkspace(second.runtime, { name: "mine" }).status === "suspended");
  assert.equal(getWorkspace(second.runtime, { name: "mine" }).lost?.since, "suspended");
});

test("a child that is still starting and a sandbox that is being killed are not adopted", async (t) => {
  const first = await forkableRuntime(t);
  const [kept, killed] = [await forkOne(first), await forkOne(first)];
  let open = () => {};
  const gate = new Promise<void>((resolve) => (open = resolve));
  first.engine.script = () => ({ gate });
  const forking = fork(first.runtime, forkRequest(), context);
  await until("the child is starting", () => first.engine.starting === 1);
  await first.runtime.registry.get(killed).record.remove();
  const claims = await Survivors.find(first.config, () => true);
  assert.deepEqual([...claims.all.keys()], [kept]);
  open();
  await forking;
  assert.equal((await Survivors.find(first.config, () => true)).all.size, 2);
});

test("a damaged record or saved state affects one sandbox, which says so and keeps its files until it is killed", async (t) => {
  const first = await forkableRuntime(t);
  const ids = [await forkOne(first), await forkOne(first), await forkOne(first), await forkOne(first)];
  const [good = "", noRecord = "", noState = "", running = ""] = ids;
  for (const id of [good, noRecord, noState]) await pause(first.runtime, { id }, context);
  await killDaemon(first);
  await writeFile(join(homeOf(first, noRecord), "sandbox.json"), "{");
  await removeTree(join(homeOf(first, noState), "state-0", "manifest.json"));
  await changeRecord(first, running, { machines: "many" });
  const second = await follow(t, first);
  const { runtime } = second;
  assert.equal(runtime.registry.get(good).state, "paused");
  for (const id of [noRecord, running]) {
    const { state, reason } = getSandbox(runtime, { id });
    assert.deepEqual([state, /record is damaged/.test(reason ?? "")], ["dead", true]);
  }
  assert.ok((await readdir(homeOf(first, noRecord))).includes("state-0"), "nothing of it is removed");
  assert.match(runtime.registry.get(noState).info().reason ?? "", /cannot be used/);
  for (const work of [
    resume(runtime, { id: noState }, context),
    setTimeouts(runtime, { id: noState, ttl_secs: 9 }),
  ])
    await rejectsWith(work, "snapshot_corrupt", /manifest is missing/);
  await runtime[Symbol.asyncDispose]();
  const third = await follow(t, first);
  assert.ok(
    (await readdir(homeOf(first, noState))).includes("state-0"),
    "a daemon that stops removes nothing of it",
  );
  for (const id of [good, noRecord, noState, running]) await kill(third.runtime, { id });
  await assertOnly(third, []);
});

test("a daemon does not start over files that another version or user can read, and changes nothing", async (t) => {
  const first = await forkableRuntime(t);
  const [running, paused] = [await forkOne(first), await forkOne(first)];
  await pause(first.runtime, { id: paused }, context);
  await killDaemon(first);
  const refuses = async (why: RegExp) => {
    const error = await rejectsWith(follow(t, first), "host_not_ready", why);
    assert.match(error.message, /Nothing was changed$/);
    assert.equal(error.remedy?.action, "advice");
    assert.match(error.remedy.text, /^Start the version of the daemon that wrote it/);
    assert.ok(first.engine.machines.some(({ hasEnded }) => !hasEnded));
    assert.ok((await readdir(homeOf(first, running))).includes("0"));
    assert.ok((await readdir(homeOf(first, paused))).includes("state-0"));
  };
  for (const id of [running, paused]) {
    for (const [change, why] of [
      [{ version: 3, colour: "blue" }, /it has version 3, and this forkd reads version 2/],
      [{ version: 1, machine: "0" }, /it has version 1/],
      [{ colour: "blue" }, /colour/],
    ] as const) {
      const before = await changeRecord(first, id, change);
      await refuses(why);
      await writeFile(join(homeOf(first, id), "sandbox.json"), before);
    }
  }
  const manifest = join(homeOf(first, running), "0", "manifest.json");
  const before = await readFile(manifest);
  // A copy: the file has another name in the snapshot.
  await removeTree(manifest);
  await writeFile(manifest, JSON.stringify({ version: 3 }));
  await refuses(/its manifest has version 3/);
  await writeFile(manifest, before);
  const second = await follow(t, first);
  assert.equal(getSandbox(second.runtime, { id: running }).state, "running");
});

test("a machine that cannot be adopted is ended and reported", async (t) => {
  const first = await forkableRuntime(t);
  const id = await forkOne(first);
  first.engine.failAttach = "it does not answer";
  const second = await follow(t, first);
  const { state, reason } = getSandbox(second.runtime, { id });
  assert.deepEqual([state, reason], ["dead", "it could not be adopted: it does not answer"]);
  await until("it is released", () => !second.runtime.places.has(id));
  await assertOnly(second, []);
});

test("a daemon that stops pauses what the next one could not adopt; one that is killed loses it, with the reason", async (t) => {
  const first = await forkableRuntime(t);
  const ids = [await forkOne(first), await forkOne(first)];
  await removeTree(first.config.runtimeDir);
  const [saved = "", lost = ""] = ids;
  const reachable = await forkOne(first);
  const sandbox = first.runtime.registry.get(lost);
  first.runtime.registry.forget(lost);
  assert.deepEqual(await closeSandboxes(first.runtime, { onStop: "keep" }), { stopped: 0, kept: 2 });
  await sandbox.release();
  const { runtime } = await follow(t, first);
  assert.equal(getSandbox(runtime, { id: saved }).state, "paused");
  assert.equal((await resume(runtime, { id: saved }, context)).state, "running");
  assert.equal(getSandbox(runtime, { id: reachable }).state, "running");
  assert.match(getSandbox(runtime, { id: lost }).reason ?? "", /its sockets were removed from /);
});

test("a sandbox keeps its time to live over a restart; one that expired in the meantime is removed", async (t) => {
  const first = await forkableRuntime(t);
  const [long, short, early] = [await forkOne(first), await forkOne(first), await forkOne(first)];
  await setTimeouts(first.runtime, { id: early, ttl_secs: 1000 });
  const { expires_at_unix: expires } = await setTimeouts(first.runtime, { id: long, ttl_secs: 1000 });
  await setTimeouts(first.runtime, { id: short, ttl_secs: 1, on_timeout: "kill" });
  await killDaemon(first);
  await changeRecord(first, short, { expires_at_unix: Date.now() / 1000 - 5 });
  // The wall clock was a year ahead then.
  await changeRecord(first, early, { expires_at_unix: Date.now() / 1000 + 365 * 86_400 });
  const second = await follow(t, first);
  assert.equal(getSandbox(second.runtime, { id: long }).expires_at_unix, expires);
  const left = (getSandbox(second.runtime, { id: early }).expires_at_unix ?? 0) - Date.now() / 1000;
  assert.ok(left > 900 && left <= 1000, `${left} s are left of 1000`);
  await until("the other is gone", () => second.runtime.registry.find(short) === undefined);
});

test("a workspace is suspended when the daemon stops, and keeps running when the daemon is killed", async (t) => {
  const first = await forkableRuntime(t);
  const made = await createWorkspace(first.runtime, workspace, context);
  assert.equal(made.status, "running");
  await rejectsWith(
    (async () => createWorkspace(first.runtime, workspace, context))(),
    "already_exists",
    /name is taken/,
  );
  const second = await follow(t, first);
  const again = getWorkspace(second.runtime, { name: "mine" });
  assert.deepEqual([again.status, again.id], ["running", made.id]);
  await second.runtime[Symbol.asyncDispose]();
  const third = await follow(t, first);
  assert.equal(getWorkspace(third.runtime, { name: "mine" }).status, "suspended");
  await resumeWorkspace(third.runtime, { name: "mine" }, context);
  assert.equal((await suspendWorkspace(third.runtime, { name: "mine" }, context)).status, "suspended");
  await deleteWorkspace(third.runtime, { name: "mine" });
  assert.deepEqual(listWorkspaces(third.runtime), []);
  assert.deepEqual(await readdir(join(first.config.dataDir, "sandboxes")), []);
  assert.throws(() => getWorkspace(third.runtime, { name: "mine" }), { code: "workspace_not_found" });
});

test("a workspace that cannot be saved keeps running when the daemon stops, and is stopped only by force", async (t) => {
  const first = await forkableRuntime(t);
  const { runtime, engine } = first;
  engine.script = (nth) =>
    nth === 1 ? { fail: { step: "write" as const, error: new Error("no space left") } } : {};
  await createWorkspace(runtime, { ...workspace, name: "good" }, context);
  const bad = await createWorkspace(runtime, { ...workspace, name: "bad" }, context);
  const refused = await rejectsWith(saveWorkspaces(runtime), "workspace_not_saved", /"bad".*no space left/);
  assert.deepEqual(refused.details["saved"], ["good"]);
  assert.equal(getWorkspace(runtime, { name: "good" }).status, "suspended");
  assert.equal(getSandbox(runtime, { id: bad.id }).state, "running");
  const closed = await closeSandboxes(runtime, { onStop: "stop" });
  assert.deepEqual([closed.stopped, closed.kept], [0, 1]);
  assert.deepEqual(
    closed.unsaved?.map(({ id, name }) => [id, name]),
    [[bad.id, "bad"]],
  );
  assert.deepEqual([engine.machines[1]?.wasLeft, engine.machines[1]?.hasEnded], [true, false]);

  const second = await follow(t, first);
  assert.equal(getWorkspace(second.runtime, { name: "bad" }).status, "running", "the next daemon adopts it");
  const adopted = second.engine.machines.at(-1);
  assert.ok(adopted);
  adopted.pause = () => Promise.reject(new Error("no pause"));
  const forced = await closeSandboxes(second.runtime, { onStop: "stop", force: true });
  assert.deepEqual([forced.stopped, forced.kept], [1, 0]);
  assert.match(forced.lost?.[0]?.error ?? "", /no pause/);
});
