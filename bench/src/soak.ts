/**
 * npm run bench -- soak [--quick | --tiny] [--cycles 1000] [--branches 200] [--out DIR] [--write]
 *
 * What a daemon accumulates: many children forked and killed, some at a time, and many branches of which only
 * the last few are kept. Between rounds, when nothing runs, the benchmark reads from /proc what the daemon
 * holds. Growth from the first quarter of the rounds to the last is a leak.
 */
import { parseArgs } from "node:util";
import type { Forkd } from "@forkd/sdk";
import { factsOf, type DaemonFacts } from "./support/daemon-facts.ts";
import { lossesFirst, markdownTable, number, publish, targetTable, type Target } from "./support/report.ts";
import { median, type Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon, type ScratchDaemon } from "./support/scratch-daemon.ts";
import { buildTiny } from "./support/snapshots.ts";
import { allOf } from "./support/turns.ts";

const { values: flags } = parseArgs({
  options: { ...commonOptions, cycles: { type: "string" }, branches: { type: "string" } },
});
const run = new Run("soak", flags);
const cycles = Number(flags.cycles ?? run.pick({ tiny: 8, quick: 80, full: 1000 }));
const branches = Number(flags.branches ?? run.pick({ tiny: 2, quick: 16, full: 200 }));
const atOnce = 4;
/** measures of each part */
const rounds = Math.max(1, Math.min(40, Math.floor(cycles / atOnce / 2)));
const keptBranches = 3;
const mib = 1024 * 1024;
const measured = ["rss_bytes", "anonymous_bytes", "descriptors", "threads", "processes", "files"] as const;

type Measure = DaemonFacts & { part: string; done: number; wallMs: number };

function measure(daemon: ScratchDaemon, part: string, done: number, wallMs: number, rows: Rows): Measure {
  const facts = factsOf(daemon.pid, [daemon.dir, daemon.runtimeDir]);
  rows.add(
    { case: part, n: done, wall_ms: wallMs, ...facts },
    `${(facts.rss_bytes / mib).toFixed(1)} MiB, ${facts.descriptors} descriptors, ${facts.files} files`,
  );
  return { ...facts, part, done, wallMs };
}

/** Every child runs a command, so that nothing of a child's life is left out. */
async function forkAndKill(forkd: Forkd, tag: string): Promise<void> {
  const children = allOf(await forkd.fork(tag, atOnce), atOnce);
  await Promise.all(
    children.map(async (child) => {
      await child.commands.run(["true"], { check: true });
      await child.kill();
    }),
  );
}

async function soakForks(daemon: ScratchDaemon, tag: string, rows: Rows): Promise<Measure[]> {
  const measures: Measure[] = [];
  const calls = Math.ceil(cycles / atOnce);
  const every = Math.max(1, Math.floor(calls / rounds));
  let started = performance.now();
  for (let call = 1; call <= calls; call++) {
    await forkAndKill(daemon.forkd, tag);
    if (call % every !== 0) continue;
    const wallMs = (performance.now() - started) / every;
    measures.push(measure(daemon, "forks", call * atOnce, wallMs, rows));
    started = performance.now();
  }
  return measures;
}

async function soakBranches(daemon: ScratchDaemon, tag: string, rows: Rows): Promise<Measure[]> {
  const { forkd } = daemon;
  const measures: Measure[] = [];
  const kept: string[] = [];
  const every = Math.max(1, Math.floor(branches / rounds));
  let started = performance.now();
  await using source = await forkd.create(tag);
  for (let count = 1; count <= branches; count++) {
    const branch = await source.branch({ tag: `soak-${count}`, n: 1 });
    for (const child of allOf(branch.children, 1)) await child.kill();
    kept.push(branch.tag);
    if (kept.length > keptBranches) await forkd.snapshots.remove(kept.shift() ?? "");
    if (count % every !== 0) continue;
    await forkd.gc();
    const wallMs = (performance.now() - started) / every;
    measures.push(measure(daemon, "branches", count, wallMs, rows));
    started = performance.now();
  }
  return measures;
}

/** Median of the first or the last quarter of the rounds. */
function quarter(
  measures: readonly Measure[],
  which: "first" | "last",
  field: keyof DaemonFacts | "wallMs",
): number {
  const length = Math.max(1, Math.floor(measures.length / 4));
  // The first rounds load code and warm caches.
  const settled = measures.slice(Math.min(2, measures.length - 1));
  const part = which === "first" ? settled.slice(0, length) : settled.slice(-length);
  return median(part.map((each) => each[field]));
}

function growth(measures: readonly Measure[], field: keyof DaemonFacts | "wallMs"): number {
  return quarter(measures, "last", field) / quarter(measures, "first", field);
}

function linesOf(measures: readonly Measure[]): string[][] {
  return [...measured, "wallMs" as const].map((field) => {
    const shown = (value: number) => (field.endsWith("bytes") ? `${number(value / mib)} MiB` : number(value));
    const [first, last] = [quarter(measures, "first", field), quarter(measures, "last", field)];
    const name = field === "wallMs" ? "ms a call" : field.replace("_bytes", "");
    return [measures[0]?.part ?? "", name, shown(first), shown(last), number(last / first, 3)];
  });
}

function targetsOf(measures: readonly Measure[]): Target[] {
  const part = measures[0]?.part ?? "";
  const limits: [keyof DaemonFacts, number][] = [
    ["rss_bytes", 1.1],
    ["descriptors", 1.05],
    ["processes", 1.05],
    ["files", 1.05],
  ];
  return limits.map(([field, limit]) => ({
    figure: `${part}: ${field.replace("_bytes", "")}, last / first quarter`,
    // From 0 to 0 does not count as growth; the ratio is undefined.
    measured:
      quarter(measures, "first", field) === 0
        ? quarter(measures, "last", field) + 1
        : growth(measures, field),
    limit,
  }));
}

await runBench(async () => {
  const rows = run.rows({ cycles, branches, at_once: atOnce });
  await using daemon = await startScratchDaemon(run);
  const { accelerator } = await daemon.forkd.status();
  const tag = await buildTiny(run, daemon);
  const forks = await soakForks(daemon, tag, rows);
  const taken = await soakBranches(daemon, tag, rows);
  const after = factsOf(daemon.pid, [daemon.dir, daemon.runtimeDir]);
  const text = [
    `${cycles} children forked, asked and killed, ${atOnce} at a time, then ${branches} branches of one sandbox, each with a child, the last ${keptBranches} kept (guest of 96 MiB, ${accelerator}, ${rows.load()}${run.remark}). Measured ${forks.length} and ${taken.length} times between calls; medians of the first and of the last quarter, without the first two.`,
    targetTable(lossesFirst([...targetsOf(forks), ...targetsOf(taken)])),
    markdownTable(
      ["part", "", "first quarter", "last quarter", "growth"],
      [...linesOf(forks), ...linesOf(taken)],
    ),
    `At the end, with no sandbox: ${number(after.rss_bytes / mib)} MiB, ${after.descriptors} descriptors, ${after.processes} processes.`,
  ].join("\n\n");
  publish(run, text, rows);
});
