import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { isSandbox, type BranchRequest, type ForkdEvent } from "@forkd/contract";
import { maxChainDepth, maxLineage } from "@forkd/store";
import { branch } from "../../src/operations/branch.ts";
import { fork } from "../../src/operations/fork.ts";
import { snapshotInfo } from "../../src/operations/list-snapshots.ts";
import { pause } from "../../src/operations/pause.ts";
import { removeSnapshot } from "../../src/operations/remove-snapshot.ts";
import { resume, rewind } from "../../src/operations/resume.ts";
import { visitedBy } from "../../src/snapshots/visited.ts";
import { WriteFaults } from "../races/write-faults.ts";
import { context, forkableRuntime, forkRequest, type TestRuntime, type TestSettings } from "../support.ts";

function request(id: string, tag: string): BranchRequest {
  return { id, tag, wait: true, n: 0, vary: [], env: {}, labels: {} };
}

type Fixture = TestRuntime & { id: string; events: ForkdEvent[] };

async function fixture(t: TestContext, settings: TestSettings): Promise<Fixture> {
  const made = await forkableRuntime(t, settings);
  const events: ForkdEvent[] = [];
  const { onEvent } = made.runtime.events;
  made.runtime.events.onEvent = (event) => {
    onEvent?.(event);
    events.push(event);
  };
  const [entry] = await fork(made.runtime, forkRequest(), context);
  assert.ok(entry && isSandbox(entry));
  return { ...made, id: entry.id, events };
}

/** Branches and rewinds to the branch, as an agent with undo does. */
async function deepen({ runtime, id }: Fixture, tag: string): Promise<string> {
  const { mode } = await branch(runtime, request(id, tag), context);
  await rewind(runtime, { id, to: tag }, context);
  return mode;
}

const compacted = ({ events }: Fixture) =>
  events.filter(({ type }) => type === "snapshot.compacted").map(({ tag }) => tag);

const lengthOf = async ({ runtime }: Fixture, tag: string) =>
  (await runtime.store.memorySource(await runtime.store.get(tag))).chain.length;

test("a sandbox is branched and rewound for ever: no branch is full, and it can go back to each", async (t) => {
  const it = await fixture(t, { compactDepth: 12 });
  const { runtime, id } = it;
  const rounds = maxChainDepth + 2;
  for (let round = 1; round <= rounds; round++) {
    assert.equal(await deepen(it, `r${round}`), "live");
    await runtime.compaction.idle();
  }
  assert.deepEqual(
    compacted(it),
    ["r11", "r22", "r33"],
    "the 12th snapshot of a chain, and the 11th over it",
  );
  const { ancestors, chain_depth } = await snapshotInfo(runtime, { tag: `r${rounds}`, verify: true });
  assert.deepEqual([chain_depth, ancestors.at(-1)], [rounds, "py"]);
  await pause(runtime, { id }, context);
  assert.ok(runtime.registry.get(id).saved?.snapshot.manifest.parent, "it is saved as a layer");
  await resume(runtime, { id }, context);
  for (const to of ["r1", "r11", "r12", "py", `r${rounds}`]) await rewind(runtime, { id, to }, context);
  const [child] = await fork(runtime, forkRequest({ snapshot_tag: "r30" }), context);
  assert.ok(child && isSandbox(child));
  await rewind(runtime, { id: child.id, to: "r2" }, context);
});

test("a sandbox has been at every snapshot of the longest chain", async (t) => {
  const { runtime, id } = await fixture(t, {});
  const chain = runtime.store.chain.bind(runtime.store);
  runtime.store.chain = async (snapshot) => {
    const [py] = await chain(snapshot);
    assert.ok(py);
    return [...Array.from({ length: maxLineage - 1 }, (_, nth) => ({ ...py, id: `newer-${nth}` })), py];
  };
  const ids = await visitedBy(runtime, runtime.registry.get(id));
  assert.deepEqual([ids.length, ids[0]], [maxLineage, (await runtime.store.get("py")).id]);
});

test("a sandbox that runs from a snapshot does not notice that its chain is compacted", async (t) => {
  const it = await fixture(t, { compactDepth: 3 });
  const { runtime, engine, id } = it;
  for (const tag of ["a", "b"]) await deepen(it, tag);
  const machine = runtime.registry.get(id).current;
  const id0 = (await runtime.store.get("b")).id;
  await runtime.compaction.idle();
  assert.deepEqual(compacted(it), ["b"]);
  assert.equal(runtime.registry.get(id).current, machine);
  assert.equal((await runtime.store.get("b")).id, id0);
  assert.equal((await branch(runtime, request(id, "c"), context)).parent_tag, "b");
  assert.equal(await lengthOf(it, "c"), 2);
  assert.equal(engine.machines.at(-1)?.isPaused, false);
  const ok = runtime.metrics.compactions.samples().find(({ labels }) => labels["outcome"] === "ok");
  assert.equal(ok?.value, 1);
});

test("a caller that needs the capacity stops a compaction; the next branch asks for it again", async (t) => {
  const it = await fixture(t, { compactDepth: 3 });
  const { runtime } = it;
  await deepen(it, "a");
  const keep = runtime.store.keepImage.bind(runtime.store);
  let stopped: unknown;
  runtime.store.keepImage = async (snapshot, options) => {
    const signal = options?.signal;
    const before = runtime.admission;
    // Needs more than the host has, until the compaction has released what it reserved.
    assert.throws(
      () =>
        before.admit({ what: "fork", n: 1, memoryMib: 0, diskMib: 0, writesMib: Number.MAX_SAFE_INTEGER }),
      { code: "capacity_exhausted" },
    );
    stopped = signal?.reason;
    return keep(snapshot, { signal });
  };
  await deepen(it, "b");
  await runtime.compaction.idle();
  assert.match(String(stopped), /needs the capacity/);
  assert.deepEqual(compacted(it), []);
  assert.deepEqual(
    (await readdir((await runtime.store.get("b")).dir)).filter((n) => n.includes("flat")),
    [],
  );
  runtime.store.keepImage = keep;
  await deepen(it, "c");
  await runtime.compaction.idle();
  assert.deepEqual(compacted(it), ["c"]);
});

test("a daemon that stops cancels a compaction, and the next one has the chain as it was", async (t) => {
  const it = await fixture(t, { compactDepth: 3 });
  const { runtime } = it;
  await deepen(it, "a");
  let closing: Promise<void> | undefined;
  const keep = runtime.store.keepImage.bind(runtime.store);
  runtime.store.keepImage = (snapshot, options) => {
    closing ??= runtime.work.end();
    return keep(snapshot, options);
  };
  await branch(runtime, request(it.id, "b"), context);
  await runtime.compaction.idle();
  await closing;
  assert.ok(closing);
  await runtime.compaction.idle();
  assert.deepEqual(compacted(it), []);
});

test("a snapshot that is removed before its turn is left out", async (t) => {
  const it = await fixture(t, { compactDepth: 2 });
  const { runtime, id } = it;
  await branch(runtime, request(id, "a"), context);
  await removeSnapshot(runtime, { tag: "a" });
  await runtime.compaction.idle();
  assert.deepEqual(compacted(it), []);
  await branch(runtime, request(id, "b"), context);
  await runtime.compaction.idle();
  assert.deepEqual(compacted(it), ["b"]);
});

test("a disk that fails at any write of a compaction leaves the chain as it was", async (t) => {
  const it = await fixture(t, { compactDepth: 2 });
  const { runtime, id, config } = it;
  const faults = await WriteFaults.install(t, config.dataDir);
  for (let nth = 1; ; nth++) {
    assert.ok(nth < 50);
    const tag = `n${nth}`;
    await branch(runtime, request(id, tag), context);
    const snapshot = await runtime.store.get(tag);
    const memory = await readFile(await runtime.store.flatMemory(snapshot));
    faults.failAt(nth, nth % 2 === 0 ? "EIO" : "ENOSPC");
    await runtime.compaction.idle();
    const hasFailed = faults.stop();
    const when = `write ${nth}, ${faults.last}`;
    assert.equal(await lengthOf(it, tag), compacted(it).includes(tag) ? 1 : 2, when);
    const files = (await readdir(snapshot.dir)).filter((name) => name.includes("flat")).sort();
    assert.deepEqual(files, compacted(it).includes(tag) ? ["flat", "flat.json"] : [], when);
    await runtime.store.evict();
    assert.ok(memory.equals(await readFile(await runtime.store.flatMemory(snapshot))), when);
    if (!hasFailed) {
      assert.ok(nth > 1 && compacted(it).includes(tag));
      t.diagnostic(`${nth - 1} writes`);
      return;
    }
  }
});
