/**
 * A disk that fails at any one write: the call says so, what was there before is there, and the same call
 * works when it is asked again.
 */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { isSandbox, toAppError, type BranchRequest, type ForkEntry } from "@forkd/contract";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { kill, killAll as killEvery } from "../../src/operations/sandboxes.ts";
import { compact } from "../../src/operations/compact.ts";
import { cleanup } from "../../src/operations/gc.ts";
import { setTimeouts } from "../../src/operations/timeouts.ts";
import { createWorkspace, deleteWorkspace } from "../../src/operations/workspaces.ts";
import { readRecord, recordOf } from "../../src/sandbox/record.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, until, type TestRuntime } from "../support.ts";
import { WriteFaults } from "./write-faults.ts";

const mostWrites = 200;

function branchOf(id: string, tag: string, n = 0): BranchRequest {
  return { id, tag, wait: true, n, vary: [], env: {}, labels: {} };
}

/** What a later daemon would find is what this one knows, and nothing else is on the disk. */
async function assertInStep({ runtime, config }: TestRuntime, when: string): Promise<void> {
  const homes: string[] = [];
  for (const sandbox of runtime.registry.all()) {
    if (sandbox.isDead) continue;
    homes.push(sandbox.id);
    const record = await readRecord(sandbox.home);
    // Numbers of machines that did not come to be may be given again by a later daemon, which has removed
    // what they left.
    const known = { ...recordOf(sandbox, sandbox.recordState), machines: record?.machines };
    assert.deepEqual(record, known, `${when}: record`);
    const expected = [
      "sandbox.json",
      ...(sandbox.machineAtWork ? [String(sandbox.machineAtWork.number)] : []),
      ...(record?.saved ? [record.saved.name] : []),
    ];
    assert.deepEqual((await readdir(sandbox.home.dir)).sort(), expected.sort(), `${when}: home`);
  }
  assert.deepEqual((await readdir(join(config.dataDir, "sandboxes"))).sort(), homes.sort(), `${when}: homes`);
  const drafts = [
    ...(await readdir(runtime.store.root)),
    ...(await readdir(join(config.dataDir, "cache", "memory"))),
  ].filter((name) => name.startsWith("."));
  assert.deepEqual(drafts, [], `${when}: drafts`);
  for (const sandbox of runtime.registry.all())
    if (sandbox.machineAtWork) assert.equal(sandbox.machineAtWork.machine.disk.length > 0, true);
  assert.equal(runtime.admission.pending, 0);
}

async function tagsOf({ runtime }: TestRuntime): Promise<string[]> {
  return (await runtime.store.list()).map(({ tag }) => tag);
}

type Step = (fixture: TestRuntime, nth: number) => Promise<unknown>;

/** Fails every write of `work` in turn. `before` makes what it needs, `after` undoes what it did. */
async function sweep(
  t: TestContext,
  { before, work, after }: { before?: Step; work: Step; after?: Step },
): Promise<void> {
  const fixture = await forkableRuntime(t);
  const faults = await WriteFaults.install(t, fixture.config.dataDir);
  for (let nth = 1; ; nth++) {
    assert.ok(nth < mostWrites);
    await before?.(fixture, nth);
    await assertInStep(fixture, `before write ${nth}`);
    const tags = await tagsOf(fixture);
    // A disk that is full and one that is broken take turns: nothing but the answer depends on which it is.
    const code = nth % 2 === 0 ? "EIO" : "ENOSPC";
    faults.failAt(nth, code);
    let isPartial = false;
    const failure = await work(fixture, nth).then(
      (result) => {
        isPartial = true;
        return failureIn(result);
      },
      (error: unknown) => toAppError(error).code,
    );
    const hasFailed = faults.stop();
    const when = `write ${nth}, ${faults.last}`;
    if (failure !== undefined) assert.equal(failure, code === "ENOSPC" ? "disk_full" : "internal", when);
    await until("what was begun is over", () => fixture.runtime.branches.all.length === 0);
    await assertInStep(fixture, when);
    if (failure !== undefined && !isPartial) assert.deepEqual(await tagsOf(fixture), tags, when);
    if (hasFailed && failure !== undefined)
      assert.equal(failureIn(await work(fixture, nth)), undefined, when);
    await after?.(fixture, nth);
    if (!hasFailed) {
      assert.ok(nth > 1, "nothing was written");
      t.diagnostic(`${nth - 1} writes`);
      return;
    }
  }
}

/** Of children, that of the first that is none. */
function failureIn(result: unknown): string | undefined {
  const entries = Array.isArray(result) ? (result as ForkEntry[]) : childrenOf(result);
  const failed = entries.find((entry) => !isSandbox(entry));
  return failed && !isSandbox(failed) ? failed.code : undefined;
}

function childrenOf(result: unknown): ForkEntry[] {
  return typeof result === "object" && result !== null && "children" in result
    ? (result.children as ForkEntry[])
    : [];
}

const only = ({ runtime }: TestRuntime): string => {
  const [sandbox] = runtime.registry.all();
  assert.ok(sandbox);
  return sandbox.id;
};
const forkOne: Step = ({ runtime }) => fork(runtime, forkRequest(), context);
const ensureOne: Step = async (fixture, nth) =>
  fixture.runtime.registry.all().length > 0 ? undefined : forkOne(fixture, nth);
const killAll: Step = async ({ runtime }) => {
  for (const { id } of runtime.registry.all()) await kill(runtime, { id });
};
const anotherOne: Step = async (fixture, nth) => {
  for (const step of [killAll, forkOne]) await step(fixture, nth);
};
const pauseIt: Step = (fixture) => pause(fixture.runtime, { id: only(fixture) }, context);
const resumeIt: Step = (fixture) => resume(fixture.runtime, { id: only(fixture) }, context);

test("a disk that fails at any write of a fork", (t) => sweep(t, { work: forkOne, after: killAll }));

test("a disk that fails at any write of a pause", (t) => sweep(t, { before: anotherOne, work: pauseIt }));

test("a disk that fails at any write of a pause over an earlier one", async (t) => {
  const before: Step = async (fixture, nth) => {
    for (const step of [anotherOne, pauseIt, resumeIt]) await step(fixture, nth);
  };
  await sweep(t, { before, work: pauseIt });
});

test("a disk that fails at any write of a resume", async (t) => {
  const before: Step = async (fixture, nth) => {
    for (const step of [anotherOne, pauseIt]) await step(fixture, nth);
  };
  await sweep(t, { before, work: resumeIt });
});

test("a disk that fails at any write of a rewind", async (t) => {
  const work: Step = (fixture) => rewind(fixture.runtime, { id: only(fixture), to: "py" }, context);
  await sweep(t, { before: ensureOne, work });
});

test("a disk that fails at any write of a branch with a child", async (t) => {
  let calls = 0;
  const work: Step = (fixture) => branch(fixture.runtime, branchOf(only(fixture), `b${calls++}`, 1), context);
  await sweep(t, { before: anotherOne, work });
});

test("a disk that fails at any write of a compaction", async (t) => {
  const before: Step = async (fixture, nth) => {
    await ensureOne(fixture, nth);
    if (nth === 1) await branch(fixture.runtime, branchOf(only(fixture), "layered"), context);
  };
  const work: Step = (fixture, nth) => compact(fixture.runtime, { tag: "layered", to: `c${nth}` }, context);
  await sweep(t, { before, work });
});

test("a disk that fails at any write of new times", async (t) => {
  const work: Step = (fixture, nth) =>
    setTimeouts(fixture.runtime, { id: only(fixture), ttl_secs: 1000 + nth, idle_timeout_secs: 500 + nth });
  await sweep(t, { before: ensureOne, work });
});

test("a disk that fails at any write of a workspace that is made", async (t) => {
  const work: Step = ({ runtime }) =>
    createWorkspace(runtime, { name: "w", snapshot_tag: "py", env: {}, labels: {} }, context);
  await sweep(t, { work, after: ({ runtime }) => deleteWorkspace(runtime, { name: "w" }) });
});

test("a kill whose files cannot be removed says so, ends the machine, and is finished by a cleanup", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  const faults = await WriteFaults.install(t, fixture.config.dataDir);
  for (let count = 0; count < 2; count++) await forkOne(fixture, count);
  const [id = "", other = ""] = runtime.registry.all().map((sandbox) => sandbox.id);
  faults.failRemovals = true;
  const error = await rejectsWith(kill(runtime, { id }), "internal", /Killed .*, but cannot remove /);
  assert.deepEqual(error.remedy, { action: "clean_up" });
  await rejectsWith(killEvery(runtime, {}), "internal", new RegExp(`Killed ${other}, but`));
  assert.deepEqual(
    [runtime.registry.all().length, engine.machines.some(({ hasEnded }) => !hasEnded)],
    [0, false],
  );
  faults.failRemovals = false;
  await cleanup(runtime, { dry_run: false });
  await assertInStep(fixture, "after the cleanup");
});
