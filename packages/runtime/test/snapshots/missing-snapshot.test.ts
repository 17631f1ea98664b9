/** Snapshots that go away while they are used. */
import assert from "node:assert/strict";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { compact } from "../../src/operations/compact.ts";
import { listSnapshots, snapshotInfo } from "../../src/operations/list-snapshots.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import { snapshotSbom } from "../../src/operations/sbom.ts";
import { addSnapshot, assertOnly, context, forkableRuntime, forkRequest } from "../support.ts";

const force = { tag: "py", cascade: undefined, force: true };

/** Outcomes of calls that run beside a removal, at every distance from it. */
async function codesBeside(
  work: () => Promise<unknown>,
  remove: () => Promise<unknown>,
): Promise<Set<string>> {
  const codes = new Set<string>();
  const call = () =>
    work().then(
      () => void codes.add("ok"),
      (error: unknown) => void codes.add(error instanceof AppError ? error.code : String(error)),
    );
  const calls: Promise<void>[] = [];
  for (let turn = 0; turn < 20; turn++) {
    calls.push(call());
    await new Promise((resolve) => setImmediate(resolve));
  }
  const removed = remove();
  for (let turn = 0; turn < 20; turn++) {
    calls.push(call());
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all([...calls, removed]);
  return codes;
}

test("what is removed meanwhile is not found, whatever uses it", async (t) => {
  const fixture = await forkableRuntime(t, { forkParallelism: 2 });
  const { runtime } = fixture;
  const remove = () => removeSnapshot(runtime, force);
  const uses: [string, () => Promise<unknown>][] = [
    ["info", () => snapshotInfo(runtime, { tag: "py", verify: true })],
    ["compact", () => compact(runtime, { tag: "py", to: `c${Math.random()}` }, context)],
    ["fork", () => fork(runtime, forkRequest(), context)],
    ["list", () => listSnapshots(runtime)],
    ["sbom", () => snapshotSbom(runtime, { tag: "py" })],
  ];
  for (const [name, use] of uses) {
    if (name !== "info") await addSnapshot(runtime.store, "py");
    const codes = await codesBeside(use, remove);
    codes.delete("ok");
    codes.delete("snapshot_not_found");
    // The machine stood already and its files may have been of two snapshots.
    if (name === "fork") codes.delete("wrong_state");
    assert.deepEqual([...codes], [], name);
  }
  await assertOnly(
    fixture,
    runtime.registry.all().map(({ id }) => id),
  );
});

test("files that are missing while the snapshot is there are a damage", async (t) => {
  const { runtime } = await forkableRuntime(t);
  const { dir } = await runtime.store.get("py");
  await rm(join(dir, "devices"));
  await assert.rejects(fork(runtime, forkRequest(), context), { code: "snapshot_corrupt" });
});
