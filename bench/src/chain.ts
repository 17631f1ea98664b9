/**
 * npm run bench -- chain [--quick] [--rounds 10] [--write]
 *
 * What the depth of a chain costs: fork, small change, branch, kill, ten times over. A child of each depth in turns, once
 * with the flat image that children map in the cache and once after it was evicted; then of a compacted copy.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { Forkd } from "@forkd/sdk";
import { markdownTable, number, publish, targetTable } from "./support/report.ts";
import { median, Rows, type Row } from "./support/rows.ts";
import { buildBase, runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { ask, rotate } from "./support/turns.ts";

const { values: flags } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    rounds: { type: "string" },
    write: { type: "boolean", default: false },
  },
});
const rounds = Number(flags.rounds ?? (flags.quick ? 3 : 10));
/** Building an image again takes longer, and its figure is no ratio of small numbers. */
const evictedRounds = Math.ceil(rounds / 3);
const memoryMib = 512;
const deepest = 10;
const depths = [0, 1, 2, 5, deepest];
const fileMib = 2;
const arrayMib = 4;
const mib = 1024 * 1024;
const compacted = "compacted";
const restMs = 200;

type Kind = "cached" | "evicted" | "after evicted";

/** Tags by depth. */
async function makeChain(forkd: Forkd, base: string, rows: Rows): Promise<string[]> {
  const tags = [base];
  for (let depth = 1; depth <= deepest; depth++) {
    await using sandbox = await forkd.forkOne(tags[depth - 1] ?? base);
    await sandbox.files.write(`/root/file-${depth}`, randomBytes(fileMib * mib));
    const { error } = await sandbox.eval(
      `_array_${depth} = numpy.arange(${(arrayMib * mib) / 8}, dtype=numpy.int64)`,
    );
    if (error !== null) throw new Error(error);
    const started = performance.now();
    const result = await sandbox.branch({ tag: `depth-${depth}` });
    const wallMs = performance.now() - started;
    const { pause_ms, resumed_ms, total_ms, timings_ms } = result;
    rows.add({
      case: "branch",
      n: 1,
      wall_ms: wallMs,
      depth,
      ...{ pause_ms, resumed_ms, total_ms, timings_ms },
      logical_bytes: result.diff_logical_bytes,
      physical_bytes: result.diff_physical_bytes,
      snapshot_bytes: result.physical_bytes,
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
  await using sandbox = await forkd.forkOne(options.tag);
  const forkMs = performance.now() - started;
  await ask(sandbox);
  const wallMs = performance.now() - started;
  rows.add({ case: options.name, n: 1, wall_ms: wallMs, fork_ms: forkMs, kind: options.kind });
}

/** The deepest knows what every ancestor did. */
async function checkContent(forkd: Forkd, tag: string): Promise<void> {
  await using sandbox = await forkd.forkOne(tag);
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
      await sleep(restMs);
      await work(name);
    }
  }
}

async function main(): Promise<void> {
  await using daemon = await startScratchDaemon("chain");
  const { forkd } = daemon;
  const { accelerator } = await forkd.status();
  const base = await buildBase(daemon, memoryMib);
  const rows = new Rows("chain", { accelerator, rounds, quick: flags.quick });
  console.error("making the chain");
  const tags = await makeChain(forkd, base, rows);
  const started = performance.now();
  await forkd.snapshots.compact(tags[deepest] ?? base, compacted);
  rows.add({ case: "compact", n: 1, wall_ms: performance.now() - started });
  await checkContent(forkd, tags[deepest] ?? base);
  await checkContent(forkd, compacted);
  const tagOf = (name: string) => (name === compacted ? compacted : (tags[Number(name)] ?? base));
  const names = [...depths.map(String), compacted];
  // The first use of a snapshot by a daemon compares its files; that is not what is measured.
  for (const name of names) await (await forkd.forkOne(tagOf(name))).kill();
  console.error("children of every depth");
  await compete(rounds, names, (name) => child(forkd, rows, { tag: tagOf(name), name, kind: "cached" }));
  console.error("after the flat images were evicted");
  await compete(evictedRounds, names, async (name) => {
    await forkd.gc();
    await child(forkd, rows, { tag: tagOf(name), name, kind: "evicted" });
    await child(forkd, rows, { tag: tagOf(name), name, kind: "after evicted" });
  });
  publish("chain", report(rows.all, names, `${accelerator}, ${rows.load()}`), rows, flags.write);
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
    `Chains of branches, each with ${fileMib} MiB of files and ${arrayMib} MiB of memory more (guest of ${memoryMib} MiB, ${facts}, ${rounds} rounds in turns, ${evictedRounds} after eviction, medians${flags.quick ? "; a quick run" : ""}).`,
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
    "One child, fork and first eval, ms. Evicted: the flat image is made from the chain first.",
    markdownTable(["", "cached", "to depth 0", "evicted", "once more", "cost of making"], lines),
    `Compacting depth ${deepest}: ${number(compact?.wall_ms ?? Number.NaN, 0)} ms. The branches that made the chain, first three → last three: stop→cont ${ends("pause_ms")}, total ${ends("total_ms")}; a layer has ${number(field(branches, "logical_bytes") / mib)} MiB.`,
  ].join("\n\n");
}

await runBench(main);
