/** Pause, resume, rewind and workspaces: what a sandbox keeps while no machine or no daemon runs. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { assertClockAfter, assertConsecutive, identityOf, Lines } from "../support/branches.ts";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { processExists, sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
});
// A test that fails must not leave sandboxes to the next tests.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

test("a paused sandbox has no process, and resume() continues where it was", async () => {
  const sandbox = await daemon.forkd.create("python", { env: { MINE: "yes" }, labels: { kept: "1" } });
  await sandbox.eval(
    "import os, time\nx = {'deep': [1, 2]}; file = open('/root/open', 'w'); file.write('before '); None",
  );
  const { execId } = await sandbox.commands.run(
    "i=0; while [ ! -e /root/stop ]; do i=$((i+1)); echo tick $i; sleep 0.02; done",
    { background: true },
  );
  const identity = await identityOf(sandbox);
  const { pid } = sandbox.info;
  const paused = await sandbox.pause();
  assert.deepEqual([paused.state, paused.id, paused.pid], ["paused", sandbox.id, undefined]);
  assert.equal(processExists(pid), false);
  assert.deepEqual(await sandbox.pause(), paused);
  const { remedy } = await rejectsWith(sandbox.commands.run(["true"]), "sandbox_paused", /is paused$/);
  assert.deepEqual(remedy, { action: "resume", id: sandbox.id });
  await rejectsWith(sandbox.eval("x"), "sandbox_paused");
  await rejectsWith(sandbox.branch({ tag: "no" }), "sandbox_paused");
  await rejectsWith(daemon.forkd.snapshots.remove("python"), "snapshot_in_use", new RegExp(sandbox.id));
  await new Promise((resolve) => setTimeout(resolve, 2000));

  const resumed = await assertClockAfter(
    () => sandbox.resume(),
    () => sandbox,
  );
  assert.deepEqual(
    [resumed.state, resumed.hostname, resumed.labels],
    ["running", paused.hostname, { kept: "1" }],
  );
  assert.deepEqual(await identityOf(sandbox), identity);
  const seen = await sandbox.eval(
    "file.write('after'); file.close(); [x, os.environ['MINE'], open('/root/open').read()]",
  );
  assert.deepEqual(seen.resultJson, [{ deep: [1, 2] }, "yes", "before after"]);
  const ticks = new Lines(await sandbox.commands.attach(execId));
  await ticks.more(10);
  await sandbox.files.write("/root/stop", "");
  await ticks.done;
  assertConsecutive(ticks.all, 1);

  // A branch of a resumed sandbox is a layer over the tagged snapshot, not over the saved state.
  await sandbox.eval("y = 'second'");
  await sandbox.pause();
  await sandbox.resume();
  const branch = await sandbox.branch({ tag: "of-resumed", n: 1 });
  assert.equal(branch.parentTag, "python");
  await sandbox.kill();
  const [child] = branch.children as Sandbox[];
  assert.deepEqual((await child?.eval("[x, y, open('/root/open').read()]"))?.resultJson, [
    { deep: [1, 2] },
    "second",
    "before after",
  ]);
  await child?.kill();
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);
});

test("rewind() restores a sandbox from its base or its own branches only", async () => {
  const sandbox = await daemon.forkd.create("tiny");
  const stranger = await daemon.forkd.create("tiny");
  await stranger.branch({ tag: "foreign" });
  await stranger.kill();
  const [hostname, machineId] = await identityOf(sandbox);
  await sh(sandbox, "echo 1 > /root/state; sync");
  await sandbox.branch({ tag: "first" });
  await sh(sandbox, "echo 2 > /root/state; sync");
  await sandbox.branch({ tag: "second", mode: "full" });
  await sh(sandbox, "echo 3 > /root/state");
  for (const [tag, state] of [
    ["first", "1"],
    ["second", "2"],
    ["first", "1"],
    ["tiny", "none"],
  ] as const) {
    const info = await sandbox.rewind(tag);
    assert.deepEqual([info.id, info.state, info.snapshotTag], [sandbox.id, "running", tag]);
    assert.equal(await sh(sandbox, "cat /root/state 2>/dev/null || echo none"), state);
    assert.deepEqual((await identityOf(sandbox)).slice(0, 2), [hostname, machineId]);
    await sh(sandbox, "echo spoiled > /root/state");
  }
  await rejectsWith(
    sandbox.rewind("foreign"),
    "wrong_state",
    /neither an ancestor of the sandbox nor a branch/,
  );
  await rejectsWith(sandbox.rewind("nowhere"), "snapshot_not_found");
  assert.equal(await sh(sandbox, "cat /root/state"), "spoiled");
  await sandbox.pause();
  await sandbox.rewind("second");
  assert.equal(await sh(sandbox, "cat /root/state"), "2");
  await sandbox.kill();
  await rejectsWith(sandbox.rewind("first"), "sandbox_not_found");
});

async function stateOf(forkd: Forkd, id: string): Promise<string> {
  return (await forkd.sandboxes.get(id)).info.state;
}

test("a paused sandbox outlives its daemon, and a lost machine can be resumed from the saved state", async () => {
  await withDaemons(["python"], async (start, dataDir) => {
    let at = await start();
    const { id } = await at.forkd.create("python").then(async (sandbox) => {
      await sandbox.eval("n = 1");
      return sandbox.pause();
    });
    const lost = await at.forkd.create("python");
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      await endDaemon(at, signal);
      at = await start();
      assert.equal(await stateOf(at.forkd, id), "paused");
      assert.deepEqual(
        (await at.forkd.sandboxes.list().all()).map((each) => each.id),
        [id],
      );
    }
    await rejectsWith(at.forkd.sandboxes.get(lost.id), "sandbox_not_found");

    const sandbox = await at.forkd.sandboxes.get(id);
    const { pid = 0 } = await sandbox.resume();
    assert.equal((await sandbox.eval("n += 1; n")).resultJson, 2);
    await endDaemon(at, "SIGKILL");
    process.kill(pid, "SIGKILL");
    await until("its machine is gone", () => !processExists(pid));
    at = await start();
    const again = await at.forkd.sandboxes.get(id);
    assert.equal(again.info.state, "paused");
    await again.resume();
    assert.equal((await again.eval("n")).resultJson, 1);

    // The same after a machine exits while the daemon runs.
    process.kill(again.info.pid ?? 0, "SIGKILL");
    await until("the sandbox is reported as paused", async () => (await stateOf(at.forkd, id)) === "paused");
    assert.match((await at.forkd.sandboxes.get(id)).info.reason ?? "", /SIGKILL.*resumed from the state/);
    await again.resume();
    assert.equal((await again.eval("n")).resultJson, 1);
    await again.kill();
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
  });
});

test("a workspace is suspended on request or at shutdown, and stale if its machine is lost before", async () => {
  await withDaemons(["tiny"], async (start, dataDir) => {
    let at = await start();
    const made = await at.forkd.workspaces.create("desk", "tiny", { env: { A: "b" } });
    assert.deepEqual([made.status, made.sourceSnapshotTag, made.liveSandboxId], ["running", "tiny", made.id]);
    await rejectsWith(at.forkd.workspaces.create("desk", "tiny"), "already_exists", /desk/);
    const sandbox = await at.forkd.workspaces.sandbox("desk");
    await sh(sandbox, "echo one > /root/notes; echo $A >> /root/notes");
    assert.equal((await at.forkd.workspaces.suspend("desk")).status, "suspended");
    assert.equal((await at.forkd.workspaces.resume("desk")).status, "running");
    await sh(sandbox, "echo two >> /root/notes");
    await at.forkd.workspaces.create("fresh", "tiny");
    const fresh = await at.forkd.workspaces.sandbox("fresh");
    await sh(fresh, "echo lost > /root/notes");

    // The daemon suspends running workspaces when it shuts down.
    await at.forkd.workspaces.create("asked", "tiny");
    await sh(await at.forkd.workspaces.sandbox("asked"), "echo kept > /root/notes");
    await endDaemon(at, "SIGTERM");
    at = await start();
    const statuses = Object.fromEntries(
      (await at.forkd.workspaces.list().all()).map(({ name, status }) => [name, status]),
    );
    assert.deepEqual(statuses, { asked: "suspended", desk: "suspended", fresh: "suspended" });
    await at.forkd.workspaces.resume("desk");
    assert.equal(await sh(await at.forkd.workspaces.sandbox("desk"), "cat /root/notes"), "one\nb\ntwo");
    await at.forkd.workspaces.remove("fresh");
    await rejectsWith(at.forkd.workspaces.get("fresh"), "workspace_not_found");

    // A workspace that was never suspended starts again from its snapshot.
    await at.forkd.workspaces.create("never", "tiny");
    const lost = await at.forkd.workspaces.sandbox("never");
    await sh(lost, "echo lost > /root/notes");
    await endDaemon(at, "SIGKILL");
    process.kill(lost.info.pid ?? 0, "SIGKILL");
    await until("its machine is gone", () => !processExists(lost.info.pid));
    at = await start();
    assert.equal((await at.forkd.workspaces.get("never")).status, "stale");
    await at.forkd.workspaces.resume("never");
    const never = await at.forkd.workspaces.sandbox("never");
    assert.equal(await sh(never, "cat /root/notes 2>/dev/null || echo nothing"), "nothing");
    assert.equal(never.info.workspace, "never");
    for (const { name } of await at.forkd.workspaces.list().all()) await at.forkd.workspaces.remove(name);
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
  });
});
