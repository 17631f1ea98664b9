/**
 * npm run bench -- branch [--quick | --tiny] [--rounds 5] [--parts grid,row,children] [--sizes 1024]
 *   [--amounts 0,500] [--out DIR] [--write]
 *
 * What BRANCH costs the source, its caller and the children: guests of several sizes that changed more or
 * less memory, all alive at once and branched in turns, each with an idle guest, with a heartbeat in it
 * (support/heartbeat.ts), and with a heartbeat and a program that keeps writing memory. Then ten branches in a row of one source, and children of a branch beside children
 * of the snapshot that its source was forked from.
 */
import { parseArgs } from "node:util";
import { Scope } from "@forkd/base";
import type { Branch, Forkd, Sandbox } from "@forkd/sdk";
import { branchReport } from "./support/branch-report.ts";
import { rest } from "./support/deadline.ts";
import { compileForGuest, Heartbeat, installHeartbeat } from "./support/heartbeat.ts";
import { publish } from "./support/report.ts";
import type { Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { buildBase } from "./support/snapshots.ts";
import { allOf, ask, rotate } from "./support/turns.ts";

const { values: flags } = parseArgs({
  options: {
    ...commonOptions,
    rounds: { type: "string" },
    parts: { type: "string", default: "grid,row,children" },
    /** of the grid, in MiB, separated by commas */
    sizes: { type: "string" },
    amounts: { type: "string" },
  },
});
const run = new Run("branch", flags);
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 2, full: 5 }));
const parts = flags.parts.split(",");
const sizes =
  listOf(flags.sizes) ?? run.pick({ tiny: [512], quick: [256, 512, 4096], full: [256, 512, 1024, 4096] });
const amounts = listOf(flags.amounts) ?? run.pick({ tiny: [1], quick: [0, 100], full: [0, 10, 100, 500] });
/** of the program that keeps writing: its memory, and how much of it per second */
const written = { mib: 50, mibPerSecond: 50 };
const dirtierPath = "/usr/local/bin/dirtier";
const modes = ["live", "diff", "full"] as const;
/** of the parts that are not about sizes */
const plain = { memoryMib: 512, divergedMib: 10 };
const inRow = run.pick({ tiny: 2, quick: 10, full: 10 });
const children = run.pick({ tiny: 2, quick: 5, full: 5 });
/** between two branches, so that one does not wait for the disk writes of another */
const restMs = run.pick({ tiny: 20, quick: 200, full: 200 });
/** beats before a branch */
const calmMs = run.pick({ tiny: 100, quick: 500, full: 500 });

type Cell = { memoryMib: number; divergedMib: number; sandbox: Sandbox };
type BranchOptions = {
  case: string;
  mode: (typeof modes)[number];
  wait?: boolean;
  index?: number;
  more?: Record<string, number>;
};

const mib = 1024 * 1024;
let serial = 0;

function listOf(text: string | undefined): number[] | undefined {
  return text?.split(",").map(Number);
}

/** Leaves room for kernel, interpreter, page cache and the program that writes. */
function fits(memoryMib: number, divergedMib: number): boolean {
  return divergedMib <= memoryMib * 0.6;
}

/** Every page gets different content. */
async function dirty(sandbox: Sandbox, amountMib: number): Promise<void> {
  if (amountMib === 0) return;
  const { error } = await sandbox.eval(`_dirty = numpy.arange(${(amountMib * mib) / 8}, dtype=numpy.int64)`, {
    timeoutMs: 300_000,
  });
  if (error !== null) throw new Error(`Cannot fill ${amountMib} MiB: ${error}`);
}

async function openCell(forkd: Forkd, memoryMib: number, divergedMib: number): Promise<Cell> {
  const sandbox = await forkd.create(`base-${memoryMib}`);
  await ask(sandbox);
  await dirty(sandbox, divergedMib);
  return { memoryMib, divergedMib, sandbox };
}

/** One branch, measured and recorded. The snapshot stays. */
async function branchOnce(
  rows: Rows,
  cell: Cell,
  { case: name, mode, wait = true, index = 0, more = {} }: BranchOptions,
  heartbeat?: Heartbeat,
): Promise<Branch> {
  const asked = performance.now();
  const result = await cell.sandbox.branch({ tag: `b-${++serial}`, mode, wait });
  const answered = performance.now();
  const gaps = heartbeat && (await gapsOf(heartbeat, { asked, answered, resumedMs: result.resumedMs }));
  const { pauseMs, resumedMs, stallMs, totalMs, timingsMs } = result;
  const sizes = { logical_bytes: result.diffLogicalBytes, physical_bytes: result.diffPhysicalBytes };
  const row = {
    case: name,
    n: 1,
    wall_ms: answered - asked,
    memory_mib: cell.memoryMib,
    diverged_mib: cell.divergedMib,
    mode,
    wait,
    index,
    ...{ pause_ms: pauseMs, resumed_ms: resumedMs, stall_ms: stallMs },
    ...{ total_ms: totalMs, timings_ms: timingsMs },
    answered_after_ms: answered - asked - resumedMs,
    ...sizes,
    ...gaps,
    ...more,
  };
  rows.add(
    row,
    `${name}, ${cell.memoryMib} MiB, ${cell.divergedMib} diverged, ${mode}, paused ${pauseMs.toFixed(1)} ms`,
  );
  return result;
}

async function gapsOf(
  heartbeat: Heartbeat,
  { asked, answered, resumedMs }: { asked: number; answered: number; resumedMs: number },
): Promise<Record<string, number>> {
  await heartbeat.beatAfter(answered);
  const all = heartbeat.gaps(asked, answered);
  const stop = heartbeat.gaps(asked, asked + resumedMs);
  // Gaps in as much time without a branch, for comparison.
  const calm = heartbeat.gaps(asked - Math.min(answered - asked, calmMs), asked - 5);
  return {
    gap_ms: all.seen_ms,
    gap_at_stop_ms: stop.seen_ms,
    gap_calm_ms: calm.seen_ms,
    gap_guest_clock_ms: all.guest_ms,
  };
}

/** Removes a snapshot, so that its pending disk writes do not slow the next branch. */
async function drop(forkd: Forkd, tag: string): Promise<void> {
  await forkd.snapshots.remove(tag);
  await forkd.gc();
}

/** Every size and amount in turns. */
async function measureGrid(forkd: Forkd, rows: Rows): Promise<void> {
  const [heartbeat, dirtier] = [await compileForGuest("heartbeat"), await compileForGuest("dirtier")];
  await using scope = new Scope();
  const cells: Cell[] = [];
  for (const memoryMib of sizes) {
    for (const divergedMib of amounts.filter((amount) => fits(memoryMib, amount))) {
      console.error(`preparing ${memoryMib} MiB, ${divergedMib} diverged`);
      const cell = await openCell(forkd, memoryMib, divergedMib);
      scope.use(cell.sandbox);
      await installHeartbeat(cell.sandbox, heartbeat);
      await cell.sandbox.files.write(dirtierPath, dirtier, { mode: "0755" });
      cells.push(cell);
    }
  }
  // The first branch of a sandbox reads files that are not in the page cache.
  for (const cell of cells) await drop(forkd, (await cell.sandbox.branch({ mode: "full" })).tag);
  for (let round = 0; round < rounds; round++) {
    console.error(`grid, round ${round + 1} of ${rounds}`);
    for (const cell of rotate(cells, round)) await measureCell(forkd, rows, cell, rotate(modes, round));
  }
  console.error("grid, guests that write");
  await measureWriting(forkd, rows, cells);
}

async function measureCell(
  forkd: Forkd,
  rows: Rows,
  cell: Cell,
  order: readonly (typeof modes)[number][],
): Promise<void> {
  for (const mode of order) {
    await rest(restMs);
    const { tag } = await branchOnce(rows, cell, { case: "idle", mode });
    await drop(forkd, tag);
  }
  await rest(restMs);
  const { tag } = await branchOnce(rows, cell, { case: "no wait", mode: "live", wait: false });
  await forkd.snapshots.ready(tag);
  await drop(forkd, tag);
  await using heartbeat = await Heartbeat.start(cell.sandbox);
  for (const mode of order) {
    await rest(restMs + calmMs);
    const beating = await branchOnce(rows, cell, { case: "heartbeat", mode }, heartbeat);
    await drop(forkd, beating.tag);
  }
}

/** Last: the memory of the program that writes has diverged too, and stays so. */
async function measureWriting(forkd: Forkd, rows: Rows, cells: readonly Cell[]): Promise<void> {
  for (const cell of cells) {
    const more = { written_mib_per_s: written.mibPerSecond };
    const command = [dirtierPath, String(written.mib), String(written.mibPerSecond)];
    const running = await cell.sandbox.commands.run(command, { background: true });
    await using heartbeat = await Heartbeat.start(cell.sandbox);
    for (let round = 0; round < rounds; round++) {
      // It begins with writing all of its memory.
      await rest(restMs + 2 * calmMs);
      const { tag } = await branchOnce(rows, cell, { case: "writing", mode: "live", more }, heartbeat);
      await drop(forkd, tag);
    }
    await running.kill();
  }
}

async function measureRow(forkd: Forkd, rows: Rows): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    console.error(`${inRow} in a row, round ${round + 1} of ${rounds}`);
    const cell = await openCell(forkd, plain.memoryMib, plain.divergedMib);
    await using _sandbox = cell.sandbox;
    // The first branch of a sandbox opens what all later ones use.
    const tags = [(await cell.sandbox.branch()).tag];
    await rest(restMs);
    for (let index = 1; index <= inRow; index++) {
      const { tag } = await branchOnce(rows, cell, { case: "in a row", mode: "live", index });
      tags.push(tag);
    }
    for (const tag of tags) await drop(forkd, tag);
  }
}

/** Runs both, the first of a pair in turns. */
async function inTurns(
  count: number,
  pair: readonly [() => Promise<void>, () => Promise<void>],
): Promise<void> {
  for (let round = 0; round < count; round++) {
    for (const work of round % 2 === 0 ? pair : pair.toReversed()) {
      await rest(restMs);
      await work();
    }
  }
}

async function askAndKill(entries: readonly unknown[], started: number): Promise<number> {
  const sandboxes = allOf(entries, entries.length);
  await Promise.all(sandboxes.map(ask));
  const wallMs = performance.now() - started;
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
  return wallMs;
}

/** Children of a branch beside children of the snapshot that its source was forked from. */
async function measureChildren(forkd: Forkd, rows: Rows): Promise<void> {
  console.error("children");
  const base = `base-${plain.memoryMib}`;
  const cell = await openCell(forkd, plain.memoryMib, plain.divergedMib);
  await using _sandbox = cell.sandbox;
  const branched = async (n: number, work: (tag: string, entries: readonly unknown[]) => Promise<void>) => {
    const { tag, children: entries } = await cell.sandbox.branch({ tag: `b-${++serial}`, n });
    await work(tag, entries);
    await drop(forkd, tag);
  };
  const forked = async (name: string, tag: string, n: number) => {
    const started = performance.now();
    rows.add({ case: name, n, wall_ms: await askAndKill(await forkd.fork(tag, n), started) });
  };
  await inTurns(rounds * 2, [
    () => forked("fork of base", base, 1),
    () => branched(0, (tag) => forked("fork right after a branch", tag, 1)),
  ]);
  await inTurns(rounds, [
    () => forked("fork of base", base, children),
    async () => {
      const started = performance.now();
      await branched(children, async (_, entries) =>
        rows.add({ case: "branch with children", n: children, wall_ms: await askAndKill(entries, started) }),
      );
    },
  ]);
}

async function main(): Promise<void> {
  await using daemon = await startScratchDaemon(run);
  const { forkd } = daemon;
  const { accelerator } = await forkd.status();
  for (const size of parts.includes("grid") ? sizes : [plain.memoryMib]) await buildBase(run, daemon, size);
  const rows = run.rows({ accelerator, rounds });
  if (parts.includes("grid")) await measureGrid(forkd, rows);
  if (parts.includes("row")) await measureRow(forkd, rows);
  if (parts.includes("children")) await measureChildren(forkd, rows);
  const facts = `${accelerator}, ${rounds} rounds in turns, medians, ${rows.load()}${run.remark}`;
  publish(run, branchReport(rows.all, { facts, plain, inRow, children }), rows);
}

await runBench(main);
