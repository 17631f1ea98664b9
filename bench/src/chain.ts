/**
 * npm run bench -- chain [--quick | --tiny] [--rounds 10] [--out DIR] [--write]
 *
 * What the depth of a chain costs: fork, small change, branch, kill, ten times. Then children of each depth
 * in turns, with the view that children use in the cache and after it was evicted; the same for a
 * compacted copy.
 */
import { randomBytes } from "node:crypto";
import { parseArgs } from "node:util";
import type { Forkd } from "@forkd/sdk";
import { rest } from "./support/deadline.ts";
import { markdownTable, number, publish, targetTable } from "./support/report.ts";
import type { Row } from "./support/row-shapes.ts";
import { median, type Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { buildBase } from "./support/snapshots.ts";
import { ask, rotate } from "./support/turns.ts";

const { values: flags } = parseArgs({ options: { ...commonOptions, rounds: { type: "string" } } });
const run = new Run("chain", flags);
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 3, full: 10 }));
/** Fewer, because every round makes the images again, and the figure is not a ratio of small numbers. */
const evictedRounds = Math.ceil(rounds / 3);
const memoryMib = 512;
const deepest = run.pick({ tiny: 2, quick: 10, full: 10 });
const depths = [0, 1, 2, 5, 10].filter((depth) => depth <= deepest);
const fileMib = 2;
const arrayMib = 4;
const mib = 1024 * 1024;
const compacted = "compacted";
const restMs = run.pick({ tiny: 0, quick: 200, full: 200 });

type Kind = "cached" | "evicted" | "after evicted";

/** Tags by depth. */
async function makeChain(forkd: Forkd, base: string, rows: Rows): Promise<string[]> {
  const tags = [base];
  for (let depth = 1; depth <= deepest; depth++) {
    await using sandbox = await forkd.create(tags[depth - 1] ?? base);
    await sandbox.files.write(`/root/file-${depth}`, randomBytes(fileMib * mib));
    const { error } = await sandbox.eval(
      `_array_${depth} = numpy.arange(${(arrayMib * mib) / 8}, dtype=numpy.int64)`,
    );
    if (error !== null) throw new Error(error);
    const started = performance.now();
    const result = await sandbox.branch({ tag: `depth-${depth}` });
    const wallMs = performance.now() - started;
    const { pauseMs, resumedMs, totalMs, timingsMs } = result;
    rows.add({
      case: "branch",
      n: 1,
      wall_ms: wallMs,
      depth,
      ...{ pause_ms: pauseMs, resumed_ms: resumedMs },
      ...{ total_ms: totalMs, timings_ms: timingsMs },
      logical_bytes: result.diffLogicalBytes,
      physical_bytes: result.diffPhysicalBytes,
      snapshot_bytes: result.physicalBytes,
    });
    tags.push(result.tag);
  }
  return tags;
}

/** One child, until it has answered. */
async function child(
  forkd: Forkd,
  rows: Rows,
  options: { tag: string; name: string; kind: Kind },
): Promise<void> {
  const started = performance.now();
  await using sandbox = await forkd.create(options.tag);
  const forkMs = performance.now() - started;
  await ask(sandbox);
  const wallMs = performance.now() - started;
  rows.add({ case: options.name, n: 1, wall_ms: wallMs, fork_ms: forkMs, kind: options.kind });
}

/** Checks that the child has the files and the memory of every ancestor. */
async function checkContent(forkd: Forkd, tag: string): Promise<void> {
  await using sandbox = await forkd.create(tag);
  const names = Array.from({ length: deepest }, (_, index) => index + 1);
  const { result, error } = await sandbox.eval(
    `[[${names.map((depth) => `_array_${depth}[-1]`).join(", ")}].count(${(arrayMib * mib) / 8 - 1}), __import__("os").system("cat /root/file-* > /dev/null")]`,
  );
  if (result !== `[${deepest}, 0]`) throw new Error(`${tag} is not what was branched: ${error ?? result}`);
}

async function compete(
  count: number,
  contenders: readonly string[],
  work: (name: string) => Promise<void>,
): Promise<void> {
  for (let round = 0; round < count; round++) {
    for (const name of rotate(contenders, round)) {
      await rest(restMs);
      await work(name);
    }
  }
}

async function main(): Promise<void> {
  await using daemon = await startScratchDaemon(run);
  const { forkd } = daemon;
  const { accelerator } = await forkd.status();
  const base = await buildBase(run, daemon, memoryMib);
  const rows = run.rows({ accelerator, rounds });
  console.error("making the chain");
  const tags = await makeChain(forkd, base, rows);
  const started = performance.now();
  await forkd.snapshots.compact(tags[deepest] ?? base, compacted);
  rows.add({ case: "compact", n: 1, wall_ms: performance.now() - started });
  await checkContent(forkd, tags[deepest] ?? base);
  await checkContent(forkd, compacted);
  const tagOf = (name: string) => (name === compacted ? compacted : (tags[Number(name)] ?? base));
  const names = [...depths.map(String), compacted];
  // The first fork of a snapshot verifies its files, which is not what is measured.
  for (const name of names) await (await forkd.create(tagOf(name))).kill();
  console.error("children of every depth");
  await compete(rounds, names, (name) => child(forkd, rows, { tag: tagOf(name), name, kind: "cached" }));
  console.error("after the views were evicted");
  await compete(evictedRounds, names, async (name) => {
    await forkd.gc();
    await child(forkd, rows, { tag: tagOf(name), name, kind: "evicted" });
    await child(forkd, rows, { tag: tagOf(name), name, kind: "after evicted" });
  });
  publish(run, report(rows.all, names, `${accelerator}, ${rows.load()}`), rows);
}

function report(all: readonly Row[], names: readonly string[], facts: string): string {
  const wall = (name: string, kind: Kind) =>
    median(all.filter((row) => row.case === name && row["kind"] === kind).map((row) => row.wall_ms));
  const cached = (name: string) => wall(name, "cached");
  const branches = all.filter((row) => row.case === "branch");
  const field = (rows: readonly Row[], figure: string) => median(rows.map((row) => Number(row[figure])));
  const ends = (figure: string) =>
    `${number(field(branches.slice(0, 3), figure))} → ${number(field(branches.slice(-3), figure))} ms`;
  const lines = names.map((name) => [
    name === compacted ? name : `depth ${name}`,
    number(cached(name), 0),
    number(cached(name) / cached("0"), 2),
    number(wall(name, "evicted"), 0),
    number(wall(name, "after evicted"), 0),
    number(wall(name, "evicted") - wall(name, "after evicted"), 0),
  ]);
  const compact = all.find((row) => row.case === "compact");
  return [
    `Chains of branches, each with ${fileMib} MiB of files and ${arrayMib} MiB of memory more (guest of ${memoryMib} MiB, ${facts}, ${rounds} rounds in turns, ${evictedRounds} after eviction, medians${run.remark}).`,
    targetTable([
      {
        figure: `fork + eval, depth ${deepest} / depth 0`,
        measured: cached(String(deepest)) / cached("0"),
        limit: 1.1,
      },
      { figure: "fork + eval, compacted / depth 0", measured: cached(compacted) / cached("0"), limit: 1.1 },
      {
        figure: "layer on disk / diverged",
        measured: median(branches.map((row) => Number(row["physical_bytes"]) / Number(row["logical_bytes"]))),
        limit: 1.1,
      },
    ]),
    "One child, fork and first eval, ms. Evicted: the view of the chain is made first.",
    markdownTable(["", "cached", "to depth 0", "evicted", "once more", "cost of making"], lines),
    `Compacting depth ${deepest}: ${number(compact?.wall_ms ?? Number.NaN, 0)} ms. The branches that made the chain, first three → last three: stop→cont ${ends("pause_ms")}, total ${ends("total_ms")}; a layer has ${number(field(branches, "logical_bytes") / mib)} MiB.`,
  ].join("\n\n");
}

await runBench(main);
