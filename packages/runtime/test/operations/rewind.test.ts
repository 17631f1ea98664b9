import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isSandbox } from "@forkd/contract";
import { maxChainDepth } from "@forkd/store";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import { branchRequest, openSource, type Source } from "../branch-source.ts";
import type { Script } from "../fakes/engine.ts";
import { follow } from "../restart.ts";
import { addSnapshot, assertOnly, context, facts, forkRequest, rejectsWith, until } from "../support.ts";

/** Branches and rewinds until the chain of the sandbox has as many snapshots as are allowed. */
async function deepen({ runtime, sandbox }: Source): Promise<void> {
  for (let depth = 2; depth <= maxChainDepth; depth++) {
    const tag = `deep${depth}`;
    await branch(runtime, branchRequest(sandbox.id, { tag }), context);
    await rewind(runtime, { id: sandbox.id, to: tag }, context);
  }
}

test("a sandbox whose chain is at its limit is branched, paused and resumed with all of its memory", async (t) => {
  const from = await openSource(t);
  const { runtime, sandbox } = from;
  await deepen(from);
  const made = await branch(runtime, branchRequest(sandbox.id, { tag: "whole", mode: "diff" }), context);
  assert.equal(made.mode, "full", "the result says how it was saved");
  assert.equal(made.parent_tag, undefined);
  for (let round = 0; round < 2; round++) {
    assert.equal((await pause(runtime, { id: sandbox.id }, context)).state, "paused");
    assert.ok(sandbox.saved?.snapshot.manifest.files.memory, "all of the memory is in the saved state");
    assert.equal((await resume(runtime, { id: sandbox.id }, context)).state, "running");
  }
  const again = await branch(runtime, branchRequest(sandbox.id, { tag: "again" }), context);
  assert.equal(again.mode, "full", "a saved state cannot be the parent of a layer");
  await rewind(runtime, { id: sandbox.id, to: "again" }, context);
  const shallow = await branch(runtime, branchRequest(sandbox.id, { tag: "shallow" }), context);
  assert.equal(shallow.parent_tag, "again", "the chain begins again");
});

test("pause() and resume() keep id and identity; what fails changes nothing", async (t) => {
  const script: Script = { fail: { step: "write", error: new Error("no write") } };
  const from = await openSource(t, script);
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
  const made = await branch(runtime, branchRequest(id, { tag: "b" }), context);
  assert.equal(made.parent_tag, "py");
});

test("a machine that dies after a resume leaves a sandbox that can be resumed again", async (t) => {
  const { runtime, sandbox, engine } = await openSource(t);
  await pause(runtime, { id: sandbox.id }, context);
  await resume(runtime, { id: sandbox.id }, context);
  engine.machines.at(-1)?.die("killed from outside");
  await until("it has fallen back", () => sandbox.state === "paused");
  assert.match(sandbox.info().reason ?? "", /killed from outside/);
  assert.equal((await resume(runtime, { id: sandbox.id }, context)).state, "running");
});

test("rewind() goes to ancestors and own branches only, and keeps the machine it has if that fails", async (t) => {
  const { runtime, sandbox, engine, machine } = await openSource(t);
  const { id } = sandbox;
  await branch(runtime, branchRequest(id, { tag: "b", n: 1 }), context);
  const child = runtime.registry.all().find((each) => each.id !== id);
  assert.ok(child);
  engine.script = () => ({ failStart: "no start" });
  await assert.rejects(rewind(runtime, { id, to: "b" }, context), /no start/);
  assert.equal(sandbox.machine, machine);
  engine.script = () => ({});
  assert.equal((await rewind(runtime, { id, to: "b" }, context)).snapshot_tag, "b");
  assert.ok(machine.disposals > 0);
  assert.equal((await rewind(runtime, { id: child.id, to: "py" }, context)).snapshot_tag, "py");
  await branch(runtime, branchRequest(child.id, { tag: "c" }), context);
  await rejectsWith(rewind(runtime, { id, to: "c" }, context), "wrong_state", /neither an ancestor/);
});

test("rewind() goes back to where the sandbox once was, also after a restart and a pause of all memory", async (t) => {
  const from = await openSource(t);
  const { runtime, sandbox } = from;
  const { id } = sandbox;
  await branch(runtime, branchRequest(id, { tag: "step1" }), context);
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
  const from = await openSource(t);
  const { runtime, sandbox, machine, config } = from;
  const { id } = sandbox;
  await branch(runtime, branchRequest(id, { tag: "safe" }), context);
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
