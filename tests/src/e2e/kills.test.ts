/**
 * The daemon is killed at random moments of everything that changes something. Whatever the moment: what was handed out is there
 * and answers, nothing half made is seen, nothing is left behind.
 *
 * FORKD_TEST_KILLS says how often, FORKD_TEST_SEED repeats a run.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { assertHonest, assertNothingHalfMade } from "../support/branches.ts";
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
type Act = {
  name: string;
  /** about how long it takes, in ms */
  takes: number;
  begin(round: Round): Promise<unknown>;
  /** What must hold with the next daemon; `done` tells whether the caller had its answer. */
  check(forkd: Forkd, subject: Sandbox, done: boolean): Promise<void>;
};

/** As it was handed out, in whatever state it may be. */
async function assertWhole(forkd: Forkd, id: string, states: readonly string[]): Promise<void> {
  const sandbox = await forkd.sandboxes.get(id);
  assert.ok(states.includes(sandbox.info.state), `${sandbox.info.state}: ${sandbox.info.reason}`);
  if (sandbox.info.state === "paused") await sandbox.resume();
  assert.equal(await sh(sandbox, "cat /root/marker"), "marked");
}

const branchAct = (mode: "live" | "diff" | "full"): Act => ({
  name: `branch ${mode}`,
  takes: 250,
  begin: ({ subject }) => subject.branch({ tag: "new", mode }),
  check: async (forkd, subject, done) => {
    const status = await assertHonest(forkd, "new");
    if (done) assert.equal(status, "ready");
    await assertWhole(forkd, subject.id, ["running"]);
  },
});

const acts: readonly Act[] = [
  {
    name: "fork",
    takes: 600,
    begin: ({ daemon }) => daemon.forkd.fork("layer", { n: 2, labels: { made: "yes" } }),
    check: async (forkd, _subject, done) => {
      const made = await forkd.sandboxes.list({ label: "made=yes" });
      if (done) assert.equal(made.length, 2);
      for (const { id } of made) {
        await assertWhole(forkd, id, ["running"]);
        await forkd.sandboxes.kill(id);
      }
    },
  },
  branchAct("live"),
  {
    name: "kill",
    takes: 40,
    begin: ({ subject }) => subject.kill(),
    check: async (forkd, { id }, done) => {
      const found = (await forkd.sandboxes.list()).some((each) => each.id === id);
      if (found && !done) return assertWhole(forkd, id, ["running"]);
      await rejectsWith(forkd.sandboxes.get(id), "sandbox_not_found");
    },
  },
  {
    name: "pause",
    takes: 200,
    begin: ({ subject }) => subject.pause(),
    check: (forkd, { id }, done) => assertWhole(forkd, id, done ? ["paused"] : ["paused", "running"]),
  },
  {
    name: "compact",
    takes: 250,
    begin: ({ daemon }) => daemon.forkd.snapshots.compact("layer", "new"),
    check: async (forkd, { id }, done) => {
      const status = await assertHonest(forkd, "new");
      if (done) assert.equal(status, "ready");
      await assertWhole(forkd, id, ["running"]);
    },
  },
  branchAct("diff"),
  {
    name: "pause and resume",
    takes: 700,
    begin: async ({ subject }) => {
      await subject.pause();
      await subject.resume();
    },
    check: (forkd, { id }) => assertWhole(forkd, id, ["paused", "running"]),
  },
  branchAct("full"),
  {
    name: "rewind",
    takes: 500,
    begin: ({ subject }) => subject.rewind("layer"),
    check: (forkd, { id }) => assertWhole(forkd, id, ["running"]),
  },
];

test(`a daemon killed at any of ${kills} moments costs nothing that was handed out (seed ${seed})`, async () => {
  const random = randomNumbers(seed);
  await withDaemons(["tiny"], async (start, dataDir) => {
    let daemon = await start();
    const first = await daemon.forkd.forkOne("tiny");
    await sh(first, "echo marked > /root/marker");
    await first.branch({ tag: "layer" });
    await first.kill();
    const bystander = await daemon.forkd.forkOne("layer");
    for (let round = 0; round < kills; round++) {
      const act = acts[round % acts.length] as Act;
      const subject = await daemon.forkd.forkOne("layer");
      let done = false;
      const acting = act.begin({ daemon, subject }).then(
        () => (done = true),
        () => undefined,
      );
      const ms = random.next().value * act.takes * 1.2;
      await new Promise((resolve) => setTimeout(resolve, ms));
      const hadAnswer = done;
      await endDaemon(daemon, "SIGKILL");
      await acting;
      try {
        daemon = await start();
        const { forkd } = daemon;
        await assertNothingHalfMade(forkd, dataDir);
        await assertWhole(forkd, bystander.id, ["running"]);
        await act.check(forkd, subject, hadAnswer);
        for (const { id } of await forkd.sandboxes.list())
          if (id !== bystander.id) await forkd.sandboxes.kill(id);
        assert.deepEqual(
          (await forkd.snapshots.list()).map(({ tag }) => tag),
          ["layer", "tiny"],
        );
        assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), [bystander.id]);
        await until("only the bystander's VMM is left", () => processesOf(dataDir).length === 1);
      } catch (error) {
        throw new Error(`round ${round}: ${act.name}, killed after ${ms.toFixed(1)} ms`, { cause: error });
      }
    }
  });
});
