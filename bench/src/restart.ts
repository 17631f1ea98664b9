/**
 * npm run bench -- restart [--quick | --tiny] [--rounds 5] [--n 1,10,50] [--kills 50] [--out DIR] [--write]
 *
 * What a crash of the daemon costs its users: N sandboxes run, the daemon is killed with SIGKILL and started
 * again. Measured from the start of the new daemon until it listens, and until every sandbox has answered a
 * command; beside it the time to fork as many. Then tests/src/e2e/kills.test.ts kills a daemon at random
 * moments of everything that changes something.
 */
import { spawn } from "node:child_process";
import { parseArgs } from "node:util";
import type { Forkd } from "@forkd/sdk";
import { launchDaemon } from "./support/daemon.ts";
import { exitOf } from "./support/deadline.ts";
import { lossesFirst, markdownTable, number, publish, targetTable, type Target } from "./support/report.ts";
import { median, type Rows } from "./support/rows.ts";
import { commonOptions, repository, Run } from "./support/run.ts";
import { runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { buildTiny } from "./support/snapshots.ts";
import { allOf } from "./support/turns.ts";

const { values: flags } = parseArgs({
  options: {
    ...commonOptions,
    rounds: { type: "string" },
    n: { type: "string" },
    kills: { type: "string" },
  },
});
const run = new Run("restart", flags);
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 2, full: 5 }));
const counts = (flags.n ?? run.pick({ tiny: "2", quick: "1,10", full: "1,10,50" })).split(",").map(Number);
const kills = Number(flags.kills ?? run.pick({ tiny: 1, quick: 9, full: 50 }));
/** seconds of the test that kills, beside 60 for each kill */
const testSecs = 300;

async function allAnswer(forkd: Forkd, ids: readonly string[]): Promise<void> {
  await Promise.all(
    ids.map(async (id) => {
      const sandbox = await forkd.sandboxes.get(id);
      await sandbox.commands.run(["true"], { check: true });
    }),
  );
}

async function restarts(rows: Rows): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (const n of counts) {
      await using first = await startScratchDaemon(run);
      const tag = await buildTiny(run, first);
      const forkedAt = performance.now();
      const ids = allOf(await first.forkd.fork(tag, n), n).map(({ id }) => id);
      await allAnswer(first.forkd, ids);
      const forkMs = performance.now() - forkedAt;
      await first.kill();
      const startedAt = performance.now();
      const { dir, runtimeDir } = first;
      await using second = await launchDaemon({
        dir,
        runtimeDir,
        env: { FORKD_POOL_MEMORY_PERCENT: "0" },
        detached: true,
      });
      const listensMs = performance.now() - startedAt;
      await allAnswer(second.forkd, ids);
      const wallMs = performance.now() - startedAt;
      rows.add(
        { case: "restart", n, wall_ms: wallMs, listens_ms: listensMs, fork_ms: forkMs },
        `listens after ${listensMs.toFixed(0)} ms; forking took ${forkMs.toFixed(0)} ms`,
      );
    }
  }
}

/** Returns how long it took, in ms. */
async function killAtRandom(): Promise<number> {
  if (run.size !== "tiny") await runNode(["tests/dist/bake.js"], {}, 3 * testSecs);
  const started = performance.now();
  const env = { FORKD_TEST_KILLS: String(kills) };
  await runNode(["--test", "tests/dist/e2e/kills.test.js"], env, testSecs + 60 * kills);
  return performance.now() - started;
}

async function runNode(args: readonly string[], env: Record<string, string>, secs: number): Promise<void> {
  const child = spawn(process.execPath, args, {
    cwd: repository,
    // A test runner below another one runs nothing unless this variable is unset.
    env: { ...process.env, ...env, NODE_TEST_CONTEXT: undefined },
    stdio: ["ignore", 2, 2],
  });
  const code = await exitOf(args.join(" "), child, secs);
  if (code !== 0) throw new Error(`node ${args.join(" ")} failed`);
}

await runBench(async () => {
  const rows = run.rows({ rounds, counts, kills });
  await restarts(rows);
  const killsMs = await killAtRandom();
  rows.add({ case: "kills at random moments, all held", n: kills, wall_ms: killsMs });
  const middle = (n: number, field: string) =>
    median(rows.all.filter((row) => row.case === "restart" && row.n === n).map((row) => Number(row[field])));
  const most = Math.max(...counts);
  const targets: Target[] = [
    {
      figure: `${most} sandboxes back / forking ${most}`,
      measured: middle(most, "wall_ms") / middle(most, "fork_ms"),
      limit: 1,
      detail: `${number(middle(most, "wall_ms"), 0)} / ${number(middle(most, "fork_ms"), 0)} ms`,
    },
  ];
  const table = markdownTable(
    ["sandboxes", "daemon listens, ms", "all have answered, ms", "forking them took, ms"],
    counts.map((n) => [
      String(n),
      ...["listens_ms", "wall_ms", "fork_ms"].map((field) => number(middle(n, field), 0)),
    ]),
  );
  const text = [
    `A daemon killed and started again, medians of ${rounds} rounds (${rows.load()}${run.remark}). Killed ${kills} times at random moments of fork, branch, kill, pause, resume, compact and rewind: every sandbox that a caller had received was there and answered, nothing was half made, nothing was left behind (${number(killsMs / 1000, 0)} s).`,
    targetTable(lossesFirst(targets)),
    table,
  ].join("\n\n");
  publish(run, text, rows);
});
