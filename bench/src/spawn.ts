/**
 * npm run bench -- spawn [--rounds 3] [--n 1,10,100] [--scale 300]
 *
 * Time until N sandboxes are ready *and have answered* one eval of numpy, beside a cold boot on the same engine, the floor
 * (the same QEMU steps without daemon), and cold Python in bubblewrap and runc where they are installed. Then what N
 * children cost: memory that diverged, idle CPU, the daemon's memory, the price of an eval through REST.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Sandbox, type Forkd } from "@forkd/sdk";
import { barChart } from "./support/chart.ts";
import { coldBoot } from "./support/cold.ts";
import { bubblewrap, extractTree, isInstalled, runc } from "./support/containers.ts";
import { answer, code, dataDir, ensureSnapshot, startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { floor } from "./support/floor.ts";
import { cpuSeconds, divergedBytes, pssBytes, rssBytes } from "./support/processes.ts";
import { median, resultsDir, Rows, table } from "./support/rows.ts";

const { values: flags } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    n: { type: "string", default: "1,10,100" },
    scale: { type: "string", default: "300" },
  },
});
const rounds = Number(flags.rounds);
const counts = flags.n.split(",").map(Number);
const tag = "python-numpy";
const mib = 1024 * 1024;
/** At the same time, for every contender: as many as the daemon starts on two cores. */
const parallel = 2;
const poolSize = 16;
const pooledName = `fork, pool of ${poolSize}`;

/** Forks n and asks each; the children are left to the caller. */
async function forkAndAsk(
  forkd: Forkd,
  n: number,
): Promise<{ wallMs: number; forkMs: number; sandboxes: Sandbox[] }> {
  const started = performance.now();
  const entries = await forkd.fork(tag, { n });
  const forkMs = performance.now() - started;
  const sandboxes = entries.filter((entry) => entry instanceof Sandbox);
  const results = await Promise.all(sandboxes.map((sandbox) => sandbox.eval(code)));
  const wallMs = performance.now() - started;
  if (results.length !== n || results.some(({ result }) => result !== answer))
    throw new Error("A child did not answer");
  return { wallMs, forkMs, sandboxes };
}

async function killAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
}

/** One contender: how long until n have answered. */
type Contender = { name: string; run: (n: number) => Promise<{ wall_ms: number } & Record<string, unknown>> };

function forkContender(name: string, { forkd }: BenchDaemon, poolSize: number): Contender {
  return {
    name,
    run: async (n) => {
      await poolFull(forkd, poolSize);
      const { wallMs, forkMs, sandboxes } = await forkAndAsk(forkd, n);
      await killAll(sandboxes);
      return { wall_ms: wallMs, fork_ms: forkMs, pool_size: poolSize };
    },
  };
}

/** Contenders take turns within each round, so that a machine that becomes slower is slower for all. */
async function compete(rows: Rows, contenders: readonly Contender[]): Promise<void> {
  for (const n of counts) {
    for (let round = 0; round < rounds; round++) {
      for (const { name, run } of contenders) rows.add({ case: name, n, ...(await run(n)) });
    }
  }
}

/** The pool fills in the background and has no event of its own on the wire. */
async function poolFull(forkd: Forkd, size: number): Promise<void> {
  while (((await forkd.status()).pool[tag] ?? 0) < size) await sleep(50);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

type Costs = Record<string, number>;

/** What children cost once they are there. */
async function measureCosts(rows: Rows): Promise<Costs> {
  await using daemon = await startDaemon({ FORKD_POOL_SIZE: "0" });
  const { sandboxes } = await forkAndAsk(daemon.forkd, 100);
  const pids = sandboxes.map(({ info }) => info.pid ?? 0);
  const costs: Costs = {
    diverged_mib_per_child: median(pids.map(divergedBytes)) / mib,
    pss_mib_per_child: median(pids.map(pssBytes)) / mib,
    daemon_rss_mib_100: rssBytes(daemon.pid) / mib,
  };
  await sleep(15_000);
  const before = pids.map(cpuSeconds);
  const windowSecs = 30;
  await sleep(windowSecs * 1000);
  costs["idle_percent_of_core"] =
    (median(pids.map((pid, index) => cpuSeconds(pid) - (before[index] ?? 0))) / windowSecs) * 100;
  const all = pids.reduce((sum, pid, index) => sum + cpuSeconds(pid) - (before[index] ?? 0), 0);
  costs["idle_percent_of_core_mean"] = (all / pids.length / windowSecs) * 100;
  const one = sandboxes[0];
  if (!one) throw new Error("No child");
  const trips: { wall: number; agent: number }[] = [];
  for (let i = 0; i < 200; i++) {
    const started = performance.now();
    const { duration_ms: agent } = await one.eval(code);
    trips.push({ wall: performance.now() - started, agent });
  }
  costs["eval_agent_ms"] = median(trips.map(({ agent }) => agent));
  costs["eval_rest_adds_ms"] = median(trips.map(({ wall, agent }) => wall - agent));
  const started = performance.now();
  await Promise.all(sandboxes.map((sandbox) => sandbox.eval(code)));
  rows.add({ case: "100 live children, one eval each", n: 100, wall_ms: performance.now() - started });
  await killAll(sandboxes);
  return costs;
}

async function measureScale(rows: Rows, n: number): Promise<Costs> {
  await using daemon = await startDaemon({ FORKD_POOL_SIZE: "0" });
  const all: Sandbox[] = [];
  const steps: number[] = [];
  for (let have = 0; have < n; have += 100) {
    const { wallMs, sandboxes } = await forkAndAsk(daemon.forkd, Math.min(100, n - have));
    rows.add({
      case: `children ${have + 1} to ${have + sandboxes.length}`,
      n: sandboxes.length,
      wall_ms: wallMs,
    });
    steps.push(wallMs);
    all.push(...sandboxes);
  }
  const started = performance.now();
  const results = await Promise.all(all.map((sandbox) => sandbox.eval(code)));
  rows.add({ case: `${n} live children, one eval each`, n, wall_ms: performance.now() - started });
  if (results.some(({ result }) => result !== answer)) throw new Error("A child did not answer");
  await killAll(all);
  return { scale_last_to_first_100: (steps.at(-1) ?? 0) / (steps[0] ?? 1) };
}

async function main(): Promise<void> {
  let accelerator = "";
  {
    await using daemon = await startDaemon({});
    await ensureSnapshot(daemon.forkd);
    ({ accelerator } = await daemon.forkd.status());
  }
  const snapshotDir = join(dataDir, "snapshots", tag);
  const rows = new Rows("spawn", { accelerator, rounds, parallel });
  console.error("cold boot");
  for (let round = 0; round < rounds; round++)
    rows.add({ case: "cold", n: 1, wall_ms: await coldBoot(snapshotDir, answer), accelerator });
  const others: string[] = [];
  {
    await using plain = await startDaemon({ FORKD_POOL_SIZE: "0" });
    await using pooled = await startDaemon({ FORKD_POOL_SIZE: String(poolSize) }, "pool");
    // The first fork of a daemon checks the files of the snapshot; that is not what is measured.
    for (const { forkd } of [plain, pooled]) await killAll((await forkAndAsk(forkd, 1)).sandboxes);
    using tree = await extractTree(join(snapshotDir, "rootfs.ext4"));
    const contenders: Contender[] = [
      forkContender("fork", plain, 0),
      forkContender(pooledName, pooled, poolSize),
      {
        name: "floor",
        run: async (n) => ({ wall_ms: await floor(snapshotDir, { n, parallel, code, answer }) }),
      },
    ];
    for (const [name, program, work] of [
      ["bubblewrap", "bwrap", bubblewrap],
      ["runc", "runc", runc],
    ] as const) {
      if (!(await isInstalled(program))) {
        console.error(`${name} is not installed: its rows are missing`);
        continue;
      }
      others.push(name);
      contenders.push({
        name,
        run: async (n) => ({ wall_ms: await work(tree.dir, { n, parallel, answer }) }),
      });
    }
    await compete(rows, contenders);
  }
  console.error("costs");
  const costs = {
    ...(await measureCosts(rows)),
    ...(Number(flags.scale) > 0 ? await measureScale(rows, Number(flags.scale)) : {}),
  };
  report(rows, costs, others, accelerator);
}

function report(rows: Rows, costs: Costs, others: readonly string[], accelerator: string): void {
  const cold = rows.median("cold", 1);
  const names = ["fork", pooledName, "floor", ...others];
  const lines = names.map((name) => [name, ...counts.map((n) => rows.median(name, n).toFixed(0))]);
  console.log(
    `\nReady and answered, median wall ms of ${rounds} rounds (${accelerator}, ${parallel} at a time). Cold boot + import: ${cold.toFixed(0)} ms\n`,
  );
  console.log(table(["", ...counts.map((n) => `N=${n}`)], lines));
  const largest = counts.at(-1) ?? 1;
  const ratio = (a: number, b: number) => (a / b).toFixed(2);
  const ratios: string[][] = [
    ["cold / fork, N=1", ratio(cold, rows.median("fork", 1)), ">= 50"],
    ["cold / fork with pool, N=1", ratio(cold, rows.median(pooledName, 1)), ">= 50"],
    [
      `fork / floor, N=${largest}`,
      ratio(rows.median("fork", largest), rows.median("floor", largest)),
      "<= 1.10",
    ],
    ...others.flatMap((name) => [
      [
        `fork / ${name}, N=${largest}`,
        ratio(rows.median("fork", largest), rows.median(name, largest)),
        name === "bubblewrap" ? "<= 1, aim 0.75" : "",
      ],
      [
        `fork with pool / ${name}, N=${largest}`,
        ratio(rows.median(pooledName, largest), rows.median(name, largest)),
        "",
      ],
    ]),
    ["guest memory diverged per child, MiB", (costs["diverged_mib_per_child"] ?? 0).toFixed(2), "<= 1.5"],
    ["PSS per child, MiB", (costs["pss_mib_per_child"] ?? 0).toFixed(1), ""],
    ["idle child, % of a core", (costs["idle_percent_of_core"] ?? 0).toFixed(2), "<= 0.5"],
    ["daemon RSS with 100 children, MiB", (costs["daemon_rss_mib_100"] ?? 0).toFixed(0), "<= 143 (150 MB)"],
    ["eval through REST adds, ms", (costs["eval_rest_adds_ms"] ?? 0).toFixed(2), "<= 2"],
    ["eval, the agent's own, ms", (costs["eval_agent_ms"] ?? 0).toFixed(2), ""],
    ["last 100 / first 100 of all children", (costs["scale_last_to_first_100"] ?? 0).toFixed(2), "about 1"],
  ];
  console.log(`\n${table(["ratio or figure", "measured", "to reach"], ratios)}\n\nraw rows: ${rows.path}`);
  const bars = [
    { label: "cold boot + import, N=1", value: cold },
    ...counts.flatMap((n) =>
      names.map((name) => ({ label: `${name}, N=${n}`, value: rows.median(name, n) })),
    ),
  ];
  const chart = join(resultsDir, "spawn.svg");
  writeFileSync(chart, barChart(`Ready and answered (${accelerator})`, "ms", bars));
  writeFileSync(join(resultsDir, "spawn-summary.json"), JSON.stringify({ costs, ratios }, null, 2));
  console.log(`chart: ${chart}`);
}

await main();
