import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { hazardIds, isSandbox, type HazardId, type HazardOutcome, type HazardResult } from "@forkd/contract";
import { branch } from "../../src/operations/branch.ts";
import { compact } from "../../src/operations/compact.ts";
import { fork } from "../../src/operations/fork.ts";
import { gc } from "../../src/operations/gc.ts";
import { snapshotInfo } from "../../src/operations/list-snapshots.ts";
import { pause } from "../../src/operations/pause.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { verify } from "../../src/operations/verify.ts";
import { createWorkspace } from "../../src/operations/workspaces.ts";
import { readResult, saveResult, verifiedDir } from "../../src/verify/results.ts";
import { branchRequest } from "../branch-source.ts";
import {
  addSnapshot,
  assertOnly,
  context,
  facts,
  forkRequest,
  openTestRuntime,
  rejectsWith,
  type TestRuntime,
} from "../support.ts";
import { drawing, verifyContext } from "./lab.ts";

function result(id: HazardId, outcome: HazardOutcome, some: Partial<HazardResult> = {}): HazardResult {
  const words = { title: "t", policy: "p", mechanism: "m", detail: `${id} ${outcome}` };
  return { id, outcome, ...words, checked_at_unix: 1, duration_ms: 1, ...some };
}

/** A runtime with a snapshot "py" that requires the hazards. */
async function requiring(t: TestContext, ...require: HazardId[]): Promise<TestRuntime & { path: string }> {
  const test = await openTestRuntime(t);
  await addSnapshot(test.runtime.store, "py", { ...facts(), require });
  const { id } = await test.runtime.store.get("py");
  return { ...test, path: join(verifiedDir(test.config), `${id}.json`) };
}

async function save({ runtime }: TestRuntime, ...results: HazardResult[]): Promise<void> {
  await saveResult(runtime, await runtime.store.get("py"), results);
}

async function change(path: string, from: string, to: string): Promise<void> {
  const text = await readFile(path, "utf8");
  assert.ok(text.includes(from));
  await writeFile(path, text.replace(from, to));
}

type Refusal = {
  why: string;
  reason: string;
  message: RegExp;
  /** what is on disk when the snapshot is forked */
  arrange: (fixture: TestRuntime & { path: string }) => Promise<void>;
};

const refusals: Refusal[] = [
  {
    why: "there is no result",
    reason: "missing",
    message: /entropy \(no result\)/,
    arrange: async () => undefined,
  },
  {
    why: "the result does not have the hazard",
    reason: "missing",
    message: /entropy \(not checked\)/,
    arrange: (fixture) => save(fixture, result("clock", "pass")),
  },
  {
    why: "the check failed",
    reason: "failed",
    message: /entropy \(entropy fail\)/,
    arrange: (fixture) => save(fixture, result("entropy", "fail")),
  },
  {
    why: "the check warned",
    reason: "failed",
    message: /entropy \(entropy warn\)/,
    arrange: (fixture) => save(fixture, result("entropy", "warn")),
  },
  {
    why: "the check could not be made",
    reason: "not_checked",
    message: /entropy \(could not be checked: no sh\)/,
    arrange: (fixture) => save(fixture, result("entropy", "not_applicable", { detail: "no sh" })),
  },
  {
    why: "the result was made with another VMM",
    reason: "stale",
    message: /engine version was 1\.2\.2, is 1\.2\.3/,
    arrange: async (fixture) => {
      const host = { ...fixture.runtime.host, engineVersion: "1.2.2" };
      await saveResult({ ...fixture.runtime, host }, await fixture.runtime.store.get("py"), [
        result("entropy", "pass"),
      ]);
    },
  },
  {
    why: "the file of the result was changed",
    reason: "corrupt",
    message: /does not match its digest/,
    arrange: async (fixture) => {
      await save(fixture, result("entropy", "fail"));
      await change(fixture.path, '"outcome": "fail"', '"outcome": "pass"');
    },
  },
  {
    why: "the file of the result is cut off",
    reason: "corrupt",
    message: /cannot be used/,
    arrange: async (fixture) => {
      await save(fixture, result("entropy", "pass"));
      await writeFile(fixture.path, (await readFile(fixture.path, "utf8")).slice(0, 100));
    },
  },
  {
    why: "the result is of another snapshot",
    reason: "corrupt",
    message: /of another snapshot/,
    arrange: async (fixture) => {
      const { runtime, path } = fixture;
      await addSnapshot(runtime.store, "other", facts({ A: "1" }));
      const other = await runtime.store.get("other");
      await saveResult(runtime, other, [result("entropy", "pass")]);
      await writeFile(path, await readFile(join(verifiedDir(fixture.config), `${other.id}.json`)));
    },
  },
];

for (const { why, reason, message, arrange } of refusals) {
  test(`fork() refuses a snapshot that requires a check when ${why}`, async (t) => {
    const fixture = await requiring(t, "entropy");
    await arrange(fixture);
    const error = await rejectsWith(
      fork(fixture.runtime, forkRequest(), context),
      "unsafe_snapshot",
      message,
    );
    assert.deepEqual(error.details["open"], [{ hazard: "entropy", reason }]);
    const action = reason === "failed" ? "show_verification" : "verify_snapshot";
    assert.deepEqual(error.remedy, { action, tag: "py" });
    assert.equal(fixture.engine.asked, 0, "no VMM is started");
    await assertOnly(fixture, []);
    const workspace = { name: "w", snapshot_tag: "py", labels: {}, env: {} };
    await rejectsWith(createWorkspace(fixture.runtime, workspace, context), "unsafe_snapshot", message);
  });
}

test("fork() accepts a snapshot whose required checks passed or cannot occur", async (t) => {
  const fixture = await requiring(t, "entropy", "network");
  await save(
    fixture,
    result("entropy", "pass"),
    result("network", "not_applicable", { absent: true }),
    // Not required.
    result("secrets", "fail"),
  );
  assert.equal((await fork(fixture.runtime, forkRequest({ n: 2 }), context)).filter(isSandbox).length, 2);
});

test("verify() makes a snapshot that requires a check usable", async (t) => {
  const { runtime, engine } = await requiring(t, "entropy");
  engine.script = () => drawing();
  await rejectsWith(fork(runtime, forkRequest(), context), "unsafe_snapshot");
  await verify(runtime, { tag: "py", n: 2, keep: false, only: ["entropy"] }, verifyContext());
  assert.ok((await fork(runtime, forkRequest(), context)).every(isSandbox));
});

test("a snapshot that requires nothing is forked without a result", async (t) => {
  const { runtime } = await openTestRuntime(t);
  await addSnapshot(runtime.store, "py");
  assert.ok((await fork(runtime, forkRequest(), context)).every(isSandbox));
});

test("branches and copies carry the requirement, and the checks of the build count for them", async (t) => {
  const fixture = await requiring(t, "entropy");
  const { runtime } = fixture;
  await save(fixture, result("entropy", "pass"));
  const { id } = await runtime.store.get("py");
  const [source] = (await fork(runtime, forkRequest(), context)).filter(isSandbox);
  assert.ok(source);
  for (const mode of ["live", "full"] as const) {
    const made = await branch(runtime, branchRequest(source.id, { tag: mode, mode, n: 1 }), context);
    const [child] = made.children.filter(isSandbox);
    const { manifest } = await runtime.store.get(mode);
    assert.deepEqual([manifest.require, manifest.verified_as], [["entropy"], id]);
    // The branch of a branch names the build, too.
    await branch(runtime, branchRequest(child?.id ?? "", { tag: `${mode}-2`, n: 1 }), context);
    assert.equal((await runtime.store.get(`${mode}-2`)).manifest.verified_as, id);
  }
  await compact(runtime, { tag: "live", to: "flat" }, context);
  assert.equal((await runtime.store.get("flat")).manifest.verified_as, id);
  assert.ok((await fork(runtime, forkRequest({ snapshot_tag: "flat" }), context)).every(isSandbox));
  const { verification } = await snapshotInfo(runtime, { tag: "flat" });
  assert.equal(verification?.snapshot_id, id);
});

test("branch() refuses children, before it stops the source, when the build's result does not count", async (t) => {
  const fixture = await requiring(t, "entropy");
  const { runtime, engine } = fixture;
  await save(fixture, result("entropy", "pass"));
  const [source] = (await fork(runtime, forkRequest(), context)).filter(isSandbox);
  assert.ok(source);
  await rm(fixture.path);
  await rejectsWith(
    branch(runtime, branchRequest(source.id, { tag: "b", n: 1 }), context),
    "unsafe_snapshot",
  );
  assert.deepEqual(engine.machines[0]?.steps, []);
  // Without children it is only saved.
  await branch(runtime, branchRequest(source.id, { tag: "b" }), context);
  await rejectsWith(fork(runtime, forkRequest({ snapshot_tag: "b" }), context), "unsafe_snapshot", /"b"/);
});

test("a branch needs its own check of secrets, because its content has changed", async (t) => {
  const fixture = await requiring(t, "secrets");
  const { runtime } = fixture;
  await save(fixture, result("secrets", "pass"));
  const [source] = (await fork(runtime, forkRequest(), context)).filter(isSandbox);
  assert.ok(source);
  const refused = branch(runtime, branchRequest(source.id, { tag: "b", n: 1 }), context);
  assert.deepEqual((await rejectsWith(refused, "unsafe_snapshot", /for itself/)).remedy, {
    action: "verify_branch",
  });
  await branch(runtime, branchRequest(source.id, { tag: "b" }), context);
  const request = forkRequest({ snapshot_tag: "b" });
  await rejectsWith(fork(runtime, request, context), "unsafe_snapshot", /secrets/);
  await saveResult(runtime, await runtime.store.get("b"), [result("secrets", "pass")]);
  assert.ok((await fork(runtime, request, context)).every(isSandbox));
});

test("resume() continues a sandbox whose snapshot is no longer verified, rewind() is refused", async (t) => {
  const fixture = await requiring(t, "entropy");
  const { runtime } = fixture;
  await save(fixture, result("entropy", "pass"));
  const [sandbox] = (await fork(runtime, forkRequest(), context)).filter(isSandbox);
  assert.ok(sandbox);
  await pause(runtime, sandbox, context);
  await rm(fixture.path);
  assert.equal((await resume(runtime, sandbox, context)).state, "running");
  await rejectsWith(rewind(runtime, { id: sandbox.id, to: "py" }, context), "unsafe_snapshot");
  assert.equal(runtime.registry.get(sandbox.id).state, "running");
});

test("gc() removes results of snapshots that no longer exist, but not those that branches use", async (t) => {
  const fixture = await requiring(t, "entropy");
  const { runtime, path } = fixture;
  await save(fixture, result("entropy", "pass"));
  const [source] = (await fork(runtime, forkRequest(), context)).filter(isSandbox);
  await branch(runtime, branchRequest(source?.id ?? "", { tag: "b", mode: "full" }), context);
  await runtime.registry.remove(source?.id ?? "");
  await runtime.store.remove("py");
  await gc(runtime, { dry_run: false });
  assert.ok((await readFile(path)).length > 0);
  assert.ok((await fork(runtime, forkRequest({ snapshot_tag: "b" }), context)).every(isSandbox));
  for (const { id } of runtime.registry.all()) await runtime.registry.remove(id);
  await runtime.store.remove("b");
  await gc(runtime, { dry_run: false });
  await assert.rejects(readFile(path), /ENOENT/);
});

test("readResult() gives back what saveResult() stored, for every hazard", async (t) => {
  const fixture = await requiring(t, "entropy");
  const all = hazardIds.map((id) => result(id, "pass"));
  await save(fixture, ...all);
  const { id } = await fixture.runtime.store.get("py");
  const stored = await readResult(fixture.runtime, id);
  assert.ok(stored.kind === "found");
  assert.deepEqual(stored.result.hazards, all);
  assert.deepEqual(stored.changed, []);
});
