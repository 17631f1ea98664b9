/**
 * Kills the daemon at random moments of every operation. The next daemon must have every sandbox and snapshot
 * that a caller received, and no drafts or leftovers.
 *
 * FORKD_TEST_KILLS sets the number of kills, FORKD_TEST_SEED repeats a run.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { assertStatusIsTrue, assertNoDrafts } from "../support/branches.ts";
import { endDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { processesOf, sh } from "../support/sandboxes.ts";

const kills = Number(process.env["FORKD_TEST_KILLS"] ?? 9);
const seed = Number(process.env["FORKD_TEST_SEED"] ?? Date.now() % 1_000_000);

/** Numbers from 0 to 1, the same for the same seed. */
function* randomNumbers(from: number): Generator<number, never> {
  for (let state = from >>> 0; ;) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state / 2 ** 32;
  }
}

type Round = { daemon: TestDaemon; subject: Sandbox };
type Operation = {
  name: string;
  /** typical duration in ms */
  takes: number;
  begin(round: Round): Promise<unknown>;
  /** Checks the state with the next daemon; `done`: the caller had its answer. */
  check(forkd: Forkd, subject: Sandbox, done: boolean): Promise<void>;
};

/** The sandbox is in one of the states and has its files. Resumes it if it is paused. */
async function assertIntact(forkd: Forkd, id: string, states: readonly string[]): Promise<void> {
  const sandbox = await forkd.sandboxes.get(id);
  assert.ok(states.includes(sandbox.info.state), `${sandbox.info.state}: ${sandbox.info.reason}`);
  if (sandbox.info.state === "paused") await sandbox.resume();
  assert.equal(await sh(sandbox, "cat /root/marker"), "marked");
}

const branchIn = (mode: "live" | "diff" | "full"): Operation => ({
  name: `branch ${mode}`,
  takes: 250,
  begin: ({ subject }) => subject.branch({ tag: "new", mode }),
  check: async (forkd, subject, done) => {
    const status = await assertStatusIsTrue(forkd, "new");
    if (done) assert.equal(status, "ready");
    await assertIntact(forkd, subject.id, ["running"]);
  },
});

const operations: readonly Operation[] = [
  {
    name: "fork",
    takes: 600,
    begin: ({ daemon }) => daemon.forkd.fork("layer", 2, { labels: { made: "yes" } }),
    check: async (forkd, _subject, done) => {
      const made = await forkd.sandboxes.list({ label: "made=yes" }).all();
      if (done) assert.equal(made.length, 2);
      for (const { id } of made) {
        await assertIntact(forkd, id, ["running"]);
        await forkd.sandboxes.kill(id);
      }
    },
  },
  branchIn("live"),
  {
    name: "kill",
    takes: 40,
    begin: ({ subject }) => subject.kill(),
    check: async (forkd, { id }, done) => {
      const found = (await forkd.sandboxes.list().all()).some((each) => each.id === id);
      if (found && !done) return assertIntact(forkd, id, ["running"]);
      await rejectsWith(forkd.sandboxes.get(id), "sandbox_not_found");
    },
  },
  {
    name: "pause",
    takes: 200,
    begin: ({ subject }) => subject.pause(),
    check: (forkd, { id }, done) => assertIntact(forkd, id, done ? ["paused"] : ["paused", "running"]),
  },
  {
    name: "compact",
    takes: 250,
    begin: ({ daemon }) => daemon.forkd.snapshots.compact("layer", "new"),
    check: async (forkd, { id }, done) => {
      const status = await assertStatusIsTrue(forkd, "new");
      if (done) assert.equal(status, "ready");
      await assertIntact(forkd, id, ["running"]);
    },
  },
  branchIn("diff"),
  {
    name: "pause and resume",
    takes: 700,
    begin: async ({ subject }) => {
      await subject.pause();
      await subject.resume();
    },
    check: (forkd, { id }) => assertIntact(forkd, id, ["paused", "running"]),
  },
  branchIn("full"),
  {
    name: "rewind",
    takes: 500,
    begin: ({ subject }) => subject.rewind("layer"),
    check: (forkd, { id }) => assertIntact(forkd, id, ["running"]),
  },
];

test(`${kills} kills of the daemon lose no sandbox or snapshot of a caller (seed ${seed})`, async () => {
  const random = randomNumbers(seed);
  await withDaemons(["tiny"], async (start, dataDir) => {
    let daemon = await start();
    const first = await daemon.forkd.create("tiny");
    await sh(first, "echo marked > /root/marker");
    await first.branch({ tag: "layer" });
    await first.kill();
    const bystander = await daemon.forkd.create("layer");
    for (let round = 0; round < kills; round++) {
      const operation = operations[round % operations.length] as Operation;
      const subject = await daemon.forkd.create("layer");
      let done = false;
      const running = operation.begin({ daemon, subject }).then(
        () => (done = true),
        () => undefined,
      );
      const ms = random.next().value * operation.takes * 1.2;
      await new Promise((resolve) => setTimeout(resolve, ms));
      const hadAnswer = done;
      await endDaemon(daemon, "SIGKILL");
      await running;
      try {
        daemon = await start();
        const { forkd } = daemon;
        await assertNoDrafts(forkd, dataDir);
        await assertIntact(forkd, bystander.id, ["running"]);
        await operation.check(forkd, subject, hadAnswer);
        for (const { id } of await forkd.sandboxes.list().all())
          if (id !== bystander.id) await forkd.sandboxes.kill(id);
        assert.deepEqual(
          (await forkd.snapshots.list().all()).map(({ tag }) => tag),
          ["layer", "tiny"],
        );
        assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), [bystander.id]);
        await until("only the bystander's VMM is left", () => processesOf(dataDir).length === 1);
      } catch (error) {
        throw new Error(`round ${round}: ${operation.name}, killed after ${ms.toFixed(1)} ms`, {
          cause: error,
        });
      }
    }
  });
});
