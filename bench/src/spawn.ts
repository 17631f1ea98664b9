/**
 * npm run bench -- spawn [--quick | --tiny] [--rounds 3] [--n 1,10,100] [--scale 300] [--trace] [--out DIR] [--write]
 *
 * Time until N sandboxes are ready *and have answered* one eval of numpy, beside a cold boot on the same
 * engine, the floor (the same QEMU steps without the daemon), and cold Python in bubblewrap and runc where
 * the host can run them. Then what N children cost: memory that diverged, idle CPU, the daemon's memory, the
 * time that REST adds to an eval. And where the time of one child goes, step by step: with --trace, only that.
 */
import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { readSnapshot, snapshotFile } from "@forkd/store";
import { renderChart } from "./support/chart.ts";
import { coldBoot } from "./support/cold.ts";
import { containers, extractTree, obstacle, type Work } from "./support/containers.ts";
import { command, poll, rest } from "./support/deadline.ts";
import { floor } from "./support/floor.ts";
import { cpuSeconds, divergedBytes, pssBytes, rssBytes } from "./support/processes.ts";
import { publish } from "./support/report.ts";
import { median, type Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon, type ScratchDaemon } from "./support/scratch-daemon.ts";
import { linkSnapshot, numpySnapshot } from "./support/snapshots.ts";
import { traceFork } from "./support/spawn-trace.ts";
import { spawnChart, spawnReport, type SpawnFacts } from "./support/spawn-report.ts";
import { traceChart, traceTable } from "./support/trace-report.ts";
import { allOf, answer, ask, code, coldScript } from "./support/turns.ts";
import { renderWaterfall } from "./support/waterfall.ts";

const { values: flags } = parseArgs({
  options: {
    ...commonOptions,
    rounds: { type: "string" },
    n: { type: "string" },
    scale: { type: "string" },
    trace: { type: "boolean", default: false },
  },
});
const run = new Run("spawn", flags);
if (flags.trace && flags.write) throw new Error("--trace measures one part: it cannot be used with --write");
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 1, full: 3 }));
const counts = (flags.n ?? run.pick({ tiny: "1,2", quick: "1,10", full: "1,10,100" })).split(",").map(Number);
const scale = Number(flags.scale ?? run.pick({ tiny: 2, quick: 0, full: 300 }));
const scaleStep = run.pick({ tiny: 1, quick: 100, full: 100 });
/** children of each traced fork, and how often */
const traced = run.pick({
  tiny: { counts: [1, 2], rounds: 1 },
  quick: { counts: [1, 10], rounds: 5 },
  full: { counts: [1, 10], rounds: 10 },
});
const tag = "python-numpy";
const mib = 1024 * 1024;
/** of every contender, at the same time: as many as the daemon starts on two cores */
const parallel = 2;
/** Its sizes are set, so this only switches the pool on. */
const poolPercent = 10;
/** after the pool is full and before a fork, so that the host is idle */
const readyRestMs = run.pick({ tiny: 0, quick: 500, full: 500 });
const refill = run.pick({
  tiny: { ready: 1, commands: 2 },
  quick: { ready: 20, commands: 10 },
  full: { ready: 50, commands: 20 },
});
/** of the children whose costs are measured */
const costs = run.pick({
  tiny: { children: 2, settleMs: 100, idleMs: 500, evals: 5 },
  quick: { children: 20, settleMs: 5_000, idleMs: 10_000, evals: 50 },
  full: { children: 100, settleMs: 15_000, idleMs: 30_000, evals: 200 },
});

/**
 * What contenders without a warm interpreter start. A tiny run does not wait until an emulated guest has
 * imported numpy, or until a whole Debian is extracted.
 */
function coldWork(snapshotDir: string): { snapshotDir: string; argv: string[] } {
  if (run.size !== "tiny") return { snapshotDir, argv: ["/usr/bin/python3", "-c", coldScript] };
  return { snapshotDir: join(run.baked, "snapshots/tiny"), argv: ["/bin/echo", answer] };
}

async function startSpawnDaemon(
  snapshotDir: string,
  pool: number,
  env: Record<string, string> = {},
): Promise<ScratchDaemon> {
  const daemon = await startScratchDaemon(run, { FORKD_POOL_MEMORY_PERCENT: String(pool), ...env });
  try {
    await linkSnapshot(snapshotDir, daemon.dir, tag);
    // The first fork of a snapshot verifies its files, which is not what is measured.
    await killAll((await forkAndAsk(daemon.forkd, 1)).sandboxes);
    return daemon;
  } catch (error) {
    await daemon[Symbol.asyncDispose]();
    throw error;
  }
}

/** Forks n and asks each. The caller kills them. */
async function forkAndAsk(
  forkd: Forkd,
  n: number,
): Promise<{ wallMs: number; forkMs: number; sandboxes: Sandbox[] }> {
  const started = performance.now();
  const entries = await forkd.fork(tag, n);
  const forkMs = performance.now() - started;
  const sandboxes = allOf(entries, n);
  await Promise.all(sandboxes.map(ask));
  return { wallMs: performance.now() - started, forkMs, sandboxes };
}

async function killAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
}

/** One contender: how long until n have answered. */
type Contender = { name: string; run: (n: number) => Promise<{ wall_ms: number } & Record<string, unknown>> };

function forkContender({ forkd }: ScratchDaemon): Contender {
  return {
    name: "fork",
    run: async (n) => {
      const { wallMs, forkMs, sandboxes } = await forkAndAsk(forkd, n);
      await killAll(sandboxes);
      return { wall_ms: wallMs, fork_ms: forkMs };
    },
  };
}

/** Sets how many children wait ready, and waits for them. */
async function fillPool(forkd: Forkd, ready: number): Promise<void> {
  await forkd.pool.set(tag, ready);
  // The pool fills in the background, and no event says that it is full.
  await poll("the pool to be full", async () => ((await forkd.status()).pool[tag] ?? 0) === ready);
}

/** As many ready children as are asked for. They are used up, so that nothing fills the pool meanwhile. */
function readyContender({ forkd }: ScratchDaemon): Contender {
  return {
    name: "fork, ready",
    run: async (n) => {
      await fillPool(forkd, n);
      await rest(readyRestMs);
      const { wallMs, forkMs, sandboxes } = await forkAndAsk(forkd, n);
      await forkd.pool.set(tag, 0);
      const taken = sandboxes.filter(({ info }) => info.from === "pool").length;
      await killAll(sandboxes);
      return { wall_ms: wallMs, fork_ms: forkMs, ready: taken };
    },
  };
}

/** A command in a sandbox while nothing else happens, and while the pool fills. */
async function measureRefill(rows: Rows, { forkd }: ScratchDaemon): Promise<void> {
  const sandbox = await forkd.create(tag);
  await forkd.pool.set(tag, 0);
  const times = async (until: () => Promise<boolean>) => {
    const all: number[] = [];
    do {
      const started = performance.now();
      await sandbox.commands.run("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done");
      all.push(performance.now() - started);
    } while (!(await until()));
    return all;
  };
  await times(async () => true);
  let left = refill.commands;
  const idle = await times(async () => --left <= 0);
  await forkd.pool.set(tag, refill.ready);
  const started = performance.now();
  const busy = await times(async () => ((await forkd.status()).pool[tag] ?? 0) >= refill.ready);
  const wallMs = performance.now() - started;
  await forkd.pool.set(tag, 0);
  await sandbox.kill();
  rows.add({
    case: "refill",
    n: refill.ready,
    wall_ms: wallMs,
    command_idle_ms: median(idle),
    command_refill_ms: median(busy),
    commands: busy.length,
  });
}

/** Records those that this host cannot run. */
async function containerContenders(rows: Rows, work: Work): Promise<Contender[]> {
  const usable: Contender[] = [];
  for (const container of containers) {
    const reason = await obstacle(container, work);
    if (reason === undefined) {
      const { name } = container;
      usable.push({ name, run: async (n) => ({ wall_ms: await container.run(work, { n, parallel }) }) });
    } else {
      const row = { case: "absent", n: 0, wall_ms: 0, contender: container.name, reason };
      rows.add(row, `${container.name}: ${reason}`);
    }
  }
  return usable;
}

/** Contenders take turns within each round, so that a host that becomes slower is slower for all. */
async function compete(rows: Rows, plain: ScratchDaemon, snapshotDir: string): Promise<void> {
  await using pooled = await startSpawnDaemon(snapshotDir, poolPercent);
  const { snapshotDir: coldDir, argv } = coldWork(snapshotDir);
  using tree = await extractTree(snapshotFile(await readSnapshot(coldDir, tag), "rootfs"));
  const contenders: Contender[] = [
    forkContender(plain),
    readyContender(pooled),
    { name: "floor", run: async (n) => ({ wall_ms: await floor(snapshotDir, { n, parallel }) }) },
    ...(await containerContenders(rows, { tree: tree.dir, argv })),
  ];
  for (const n of counts) {
    for (let round = 0; round < rounds; round++) {
      for (const contender of contenders) rows.add({ case: contender.name, n, ...(await contender.run(n)) });
    }
  }
  await measureRefill(rows, pooled);
}

/** Percent of a core that each process uses while it gets no requests. */
async function idleShares(pids: readonly number[]): Promise<number[]> {
  await rest(costs.settleMs);
  const before = pids.map(cpuSeconds);
  await rest(costs.idleMs);
  return pids.map((pid, index) => ((cpuSeconds(pid) - (before[index] ?? 0)) / (costs.idleMs / 1000)) * 100);
}

/** Medians of one eval: what the agent and the interpreter take, and what REST adds. */
async function evalCosts(sandbox: Sandbox): Promise<{ eval_agent_ms: number; eval_rest_adds_ms: number }> {
  const trips: { wall: number; agent: number }[] = [];
  for (let i = 0; i < costs.evals; i++) {
    const started = performance.now();
    const { durationMs: agent } = await sandbox.eval(code);
    trips.push({ wall: performance.now() - started, agent });
  }
  return {
    eval_agent_ms: median(trips.map(({ agent }) => agent)),
    eval_rest_adds_ms: median(trips.map(({ wall, agent }) => wall - agent)),
  };
}

async function askAll(rows: Rows, sandboxes: readonly Sandbox[]): Promise<void> {
  const n = sandboxes.length;
  const started = performance.now();
  await Promise.all(sandboxes.map(ask));
  rows.add({ case: `${n} live children, one eval each`, n, wall_ms: performance.now() - started });
}

async function measureCosts(rows: Rows, daemon: ScratchDaemon): Promise<void> {
  const started = performance.now();
  const { sandboxes } = await forkAndAsk(daemon.forkd, costs.children);
  const pids = sandboxes.map(({ info }) => info.pid ?? 0);
  const memory = {
    diverged_mib_per_child: median(pids.map(divergedBytes)) / mib,
    pss_mib_per_child: median(pids.map(pssBytes)) / mib,
    daemon_rss_mib: rssBytes(daemon.pid) / mib,
  };
  const idle = await idleShares(pids);
  const [one] = sandboxes;
  if (!one) throw new Error("There is no child");
  rows.add({
    case: "costs",
    n: costs.children,
    ...memory,
    idle_percent_of_core: median(idle),
    idle_percent_of_core_mean: idle.reduce((sum, share) => sum + share, 0) / idle.length,
    ...(await evalCosts(one)),
    wall_ms: performance.now() - started,
  });
  await askAll(rows, sandboxes);
  await killAll(sandboxes);
}

/** Children in steps, all of which stay: whether the last are as fast as the first. */
async function measureScale(rows: Rows, { forkd }: ScratchDaemon): Promise<void> {
  const all: Sandbox[] = [];
  while (all.length < scale) {
    const { wallMs, sandboxes } = await forkAndAsk(forkd, Math.min(scaleStep, scale - all.length));
    const name = `children ${all.length + 1} to ${all.length + sandboxes.length}`;
    rows.add({ case: name, n: sandboxes.length, wall_ms: wallMs });
    all.push(...sandboxes);
  }
  await askAll(rows, all);
  await killAll(all);
}

/** On its own daemon, because notes cost the others a little time. */
async function measureSteps(rows: Rows, snapshotDir: string): Promise<void> {
  await using daemon = await startSpawnDaemon(snapshotDir, 0, { FORKD_LOG_LEVEL: "debug" });
  for (const n of traced.counts)
    for (let round = 0; round < traced.rounds; round++) await traceFork(rows, daemon, tag, n);
}

/** Charts for light and dark pages. Returns their paths. */
function draw(name: string, render: (theme: "light" | "dark") => string): string[] {
  return (["light", "dark"] as const).map((theme) => {
    const path = join(run.out, `${name}-${theme}.svg`);
    writeFileSync(path, render(theme));
    return path;
  });
}

function report(rows: Rows, facts: SpawnFacts): void {
  const steps = traceChart(rows.all);
  const stepCharts = draw("spawn-trace", (theme) => renderWaterfall(steps, theme));
  if (flags.trace) return publish(run, traceTable(rows.all), rows, stepCharts);
  const bars = spawnChart(rows.all, facts);
  const charts = [...draw("spawn", (theme) => renderChart(bars, theme)), ...stepCharts];
  publish(run, spawnReport(rows.all, facts), rows, charts);
}

await runBench(async () => {
  const snapshotDir = await numpySnapshot(run);
  const { manifest } = await readSnapshot(snapshotDir, tag);
  const { accelerator, memory_mib: memoryMib } = manifest.machine;
  const version = await command("qemu-system-x86_64", ["--version"]);
  const qemu = /version [\d.]+/.exec(version.stdout)?.[0].replace("version", "QEMU") ?? "QEMU";
  const rows = run.rows({ accelerator, rounds, parallel, qemu, memory_mib: memoryMib });
  const facts = { accelerator, rounds, parallel, counts, memoryMib, qemu, cores: cpus().length };
  const finish = () => report(rows, { ...facts, remarks: rows.load() + run.remark });
  console.error("steps");
  await measureSteps(rows, snapshotDir);
  if (flags.trace) return finish();
  console.error("cold boot");
  for (let round = 0; round < rounds; round++) {
    const wallMs = await coldBoot(coldWork(snapshotDir), run.images);
    rows.add({ case: "cold", n: 1, wall_ms: wallMs, accelerator });
  }
  console.error("contenders");
  await using plain = await startSpawnDaemon(snapshotDir, 0);
  await compete(rows, plain, snapshotDir);
  console.error("costs");
  await measureCosts(rows, plain);
  if (scale > 0) await measureScale(rows, plain);
  finish();
});
