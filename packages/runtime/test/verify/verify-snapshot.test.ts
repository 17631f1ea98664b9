import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { isSandbox, type VerifyRequest } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { snapshotInfo } from "../../src/operations/list-snapshots.ts";
import { verify } from "../../src/operations/verify.ts";
import { fail, pass } from "../../src/verify/hazard.ts";
import { readResult } from "../../src/verify/results.ts";
import { noteRun, removeAbandonedRuns, runLabel } from "../../src/verify/runs.ts";
import { verifySnapshot } from "../../src/verify/verify-snapshot.ts";
import {
  addSnapshot,
  assertOnly,
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  type TestRuntime,
} from "../support.ts";
import { drawing, hazard, verifyContext } from "./lab.ts";

async function tags({ runtime }: TestRuntime): Promise<string[]> {
  return (await runtime.store.list()).map(({ tag }) => tag);
}

/** Nothing of a verification is left but its result. */
async function assertRemoved(fixture: TestRuntime): Promise<void> {
  await assertOnly(fixture, []);
  assert.deepEqual(await tags(fixture), ["py"]);
  const dir = join(fixture.config.dataDir, "verified", "runs");
  assert.deepEqual(await readdir(dir).catch(() => []), []);
}

const request: VerifyRequest = { tag: "py", n: 4, keep: false, only: ["entropy"] };

test("verify() finds that children draw the same random numbers", async (t) => {
  const fixture = await forkableRuntime(t);
  fixture.engine.script = () => drawing(() => "8c7b2f3e-0000-4000-8000-000000000001");
  const seen = verifyContext();
  const report = await verify(fixture.runtime, request, seen);
  assert.equal(report.outcome, "fail");
  assert.deepEqual(seen.hazards, ["entropy fail"]);
  assert.match(report.hazards[0]?.detail ?? "", /child 1 and child 1 drew the same number/);
  await assertRemoved(fixture);
});

test("verify() finds one number that a child of the branch shares with its source", async (t) => {
  const fixture = await forkableRuntime(t);
  const again = randomUUID();
  let firstDraws = 0;
  // Machines 0 to 3 are children, 4 and 5 those of the branch.
  fixture.engine.script = (nth) =>
    drawing(() => ((nth === 0 && firstDraws++ === 0) || nth === 5 ? again : randomUUID()));
  const report = await verify(fixture.runtime, request, verifyContext());
  assert.match(report.hazards[0]?.detail ?? "", /child 1 and branched child 2 drew the same/);
});

test("verify() passes children that differ, stores the result and shows it with the snapshot", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, engine } = fixture;
  engine.script = () => drawing();
  assert.equal((await snapshotInfo(runtime, { tag: "py" })).verification, undefined);
  const report = await verify(runtime, { ...request, only: ["entropy", "compatibility"] }, verifyContext());
  assert.deepEqual(
    report.hazards.map(({ id, outcome }) => [id, outcome]),
    [
      ["entropy", "pass"],
      ["compatibility", "pass"],
    ],
  );
  assert.deepEqual(report.children, { forked: 4, pooled: 0, branched: 2 });
  const { verification } = await snapshotInfo(runtime, { tag: "py" });
  assert.equal(verification?.current, true);
  assert.deepEqual(verification?.hazards, report.hazards);
  await assertRemoved(fixture);
});

test("a check of some hazards keeps the results of the others", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  engine.script = () => drawing();
  await verify(runtime, { ...request, only: ["compatibility"] }, verifyContext());
  await verify(runtime, request, verifyContext());
  const { verification } = await snapshotInfo(runtime, { tag: "py" });
  assert.deepEqual(
    verification?.hazards.map(({ id }) => id),
    ["entropy", "compatibility"],
  );
});

test("verify() checks children that waited in the pool", async (t) => {
  const { runtime, engine } = await forkableRuntime(t, { poolMemoryPercent: 10 });
  engine.script = () => drawing();
  const { children } = await verify(runtime, request, verifyContext());
  assert.deepEqual(children, { forked: 2, pooled: 2, branched: 2 });
  await runtime.pool.empty();
});

test("an image without programs is reported as such, never as passed", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  engine.script = () => ({
    answer: ({ argv }) => (argv.length > 0 ? { refuse: "no such program" } : undefined),
  });
  const report = await verify(runtime, { ...request, only: ["secrets", "instant"] }, verifyContext());
  assert.deepEqual(
    report.hazards.map(({ outcome, detail, absent }) => [outcome, detail, absent]),
    [
      ["not_applicable", "no sh", undefined],
      ["not_applicable", "no sh", undefined],
    ],
  );
});

test("verify() leaves nothing when its caller goes away in the middle of a check", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime } = fixture;
  const abort = new AbortController();
  const hanging = hazard({
    check: () => {
      abort.abort(new Error("gone"));
      return new Promise(() => undefined);
    },
  });
  const snapshot = await runtime.store.get("py");
  const done = verifySnapshot(runtime, snapshot, request, verifyContext(abort.signal), [hanging]);
  await assert.rejects(done, /gone/);
  await assertRemoved(fixture);
  assert.equal((await readResult(runtime, snapshot.id)).kind, "missing");
});

for (const step of ["a fork", "the branch", "a fork of the branch"] as const) {
  test(`verify() leaves nothing when ${step} fails`, async (t) => {
    const fixture = await forkableRuntime(t);
    fixture.engine.script = (nth) => {
      if (step === "the branch" && nth === 0) return { failSave: "no device state" };
      const fails = step === "a fork" ? nth === 1 : nth === 5;
      return fails ? { refuseAfterFork: "cannot reseed" } : drawing();
    };
    await assert.rejects(verify(fixture.runtime, request, verifyContext()), /cannot reseed|no device state/);
    await assertRemoved(fixture);
  });
}

test("verify() with keep leaves the children and the branch, and names them", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  engine.script = () => drawing();
  const { kept } = await verify(runtime, { ...request, keep: true }, verifyContext());
  assert.equal(kept?.sandboxes.length, 6);
  for (const id of kept?.sandboxes ?? []) assert.equal(runtime.registry.get(id).state, "running");
  await runtime.store.get(kept?.snapshots[0] ?? "");
});

test("the next daemon removes the sandboxes and the branch of a run that was cut off", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime } = fixture;
  const run = "verify-0123456789ab";
  await noteRun(runtime, run);
  await fork(runtime, forkRequest({ n: 2, labels: { [runLabel]: run } }), context);
  const [other] = await fork(runtime, forkRequest(), context);
  assert.ok(other && isSandbox(other));
  await addSnapshot(runtime.store, run);
  await removeAbandonedRuns(runtime);
  await assertOnly(fixture, [other.id]);
  assert.deepEqual(await tags(fixture), ["py"]);
  await removeAbandonedRuns(runtime);
});

test("a result is not kept for a snapshot that was replaced during the check", async (t) => {
  const { runtime } = await forkableRuntime(t);
  const replacing = hazard({
    check: async () => {
      await addSnapshot(runtime.store, "py");
      return pass("of the old one");
    },
  });
  const snapshot = await runtime.store.get("py");
  const done = verifySnapshot(runtime, snapshot, request, verifyContext(), [replacing]);
  await rejectsWith(done, "snapshot_not_found", /removed or replaced/);
});

test("verify() reports a failure in its outcome, not as an error", async (t) => {
  const { runtime } = await forkableRuntime(t);
  const failing = hazard({ check: async () => fail("wrong", "Correct it.") });
  const snapshot = await runtime.store.get("py");
  const report = await verifySnapshot(runtime, snapshot, request, verifyContext(), [failing]);
  assert.deepEqual([report.outcome, report.hazards[0]?.remedy], ["fail", "Correct it."]);
});
