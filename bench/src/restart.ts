/**
 * npm run bench -- restart [--quick] [--rounds 5] [--n 1,10,50] [--kills 50] [--write]
 *
 * What the end of a daemon costs those who use it: N sandboxes run, the daemon is killed with SIGKILL and started again. Measured
 * from the start of the new one to the moment it listens, and to the moment when every sandbox has answered a command; beside it
 * what it takes to fork as many. Then the daemon is killed at random moments of everything that changes something, by the test
 * that holds it, as often as asked.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Sandbox, type Forkd } from "@forkd/sdk";
import { launchDaemon, repository } from "./support/daemon.ts";
import { lossesFirst, markdownTable, number, publish, targetTable, type Target } from "./support/report.ts";
import { Rows } from "./support/rows.ts";
import { runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { buildTiny } from "./support/tiny.ts";

const { values: flags } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    rounds: { type: "string" },
    n: { type: "string" },
    kills: { type: "string" },
    write: { type: "boolean", default: false },
  },
});
const rounds = Number(flags.rounds ?? (flags.quick ? 2 : 5));
const counts = (flags.n ?? (flags.quick ? "1,10" : "1,10,50")).split(",").map(Number);
const kills = Number(flags.kills ?? (flags.quick ? 9 : 50));

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
      await using first = await startScratchDaemon("restart");
      const tag = await buildTiny(first.forkd);
      const forkedAt = performance.now();
      const children = (await first.forkd.fork(tag, { n })).filter((entry) => entry instanceof Sandbox);
      const ids = children.map(({ id }) => id);
      if (ids.length < n) throw new Error(`only ${ids.length} of ${n} children came to be`);
      await allAnswer(first.forkd, ids);
      const forkMs = performance.now() - forkedAt;
      await first.kill();
      const startedAt = performance.now();
      const { dir, runtimeDir } = first;
      await using second = await launchDaemon({
        dir,
        runtimeDir,
        env: { FORKD_POOL_SIZE: "0" },
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

/** Gives how long it took, in ms. */
async function killAtRandom(): Promise<number> {
  await run("tests/dist/bake.js", [], {});
  const started = performance.now();
  await run("--test", ["tests/dist/e2e/kills.test.js"], { FORKD_TEST_KILLS: String(kills) });
  return performance.now() - started;
}

async function run(program: string, args: readonly string[], env: Record<string, string>): Promise<void> {
  const path = program.startsWith("--") ? program : join(repository, program);
  const child = spawn(process.execPath, [path, ...args], {
    cwd: repository,
    env: { ...process.env, ...env },
    stdio: ["ignore", 2, 2],
  });
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`${program} ${args.join(" ")} failed`);
}

await runBench(async () => {
  const rows = new Rows("restart", { rounds, counts, kills, quick: flags.quick });
  await restarts(rows);
  const killsMs = await killAtRandom();
  rows.add({ case: "kills at random moments, all held", n: kills, wall_ms: killsMs });
  const median = (n: number, field: string) => {
    const values = rows.all
      .filter((row) => row.case === "restart" && row.n === n)
      .map((row) => Number(row[field]));
    return values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN;
  };
  const most = Math.max(...counts);
  const targets: Target[] = [
    {
      figure: `${most} sandboxes back / forking ${most}`,
      measured: median(most, "wall_ms") / median(most, "fork_ms"),
      limit: 1,
      detail: `${number(median(most, "wall_ms"), 0)} / ${number(median(most, "fork_ms"), 0)} ms`,
    },
  ];
  const table = markdownTable(
    ["sandboxes", "daemon listens, ms", "all have answered, ms", "forking them took, ms"],
    counts.map((n) => [
      String(n),
      ...["listens_ms", "wall_ms", "fork_ms"].map((field) => number(median(n, field), 0)),
    ]),
  );
  const text = [
    `A daemon killed and started again, medians of ${rounds} rounds (${rows.load()}). Killed ${kills} times at random moments of fork, branch, kill, pause, resume, compact and rewind: every sandbox that had been handed out was there and answered, nothing half made was seen, nothing was left (${number(killsMs / 1000, 0)} s).`,
    targetTable(lossesFirst(targets)),
    table,
  ].join("\n\n");
  publish("restart", text, rows, flags.write);
});
