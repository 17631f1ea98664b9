/**
 * npm run bench -- hostile [--quick | --tiny] [--guests 8] [--out DIR] [--write]
 *
 * Guests that break the agent protocol on purpose, all in the same way at the same time, and one whose code
 * breaks the kernel protocol: how long `/version` took meanwhile, a call that needs nothing but the daemon;
 * how much memory the daemon took; whether a sandbox beside them kept answering.
 */
import { parseArgs } from "node:util";
import { AppError, errorCodes } from "@forkd/contract";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { deadline, DeadlineError, rest } from "./support/deadline.ts";
import { rssBytes } from "./support/processes.ts";
import { kernelAttacks } from "./support/hostile-kernel.ts";
import { attack, calls, makeImpostor, targets, ways, type Way } from "./support/impostor.ts";
import { lossesFirst, markdownTable, number, publish, targetTable, type Target } from "./support/report.ts";
import type { Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon, type ScratchDaemon } from "./support/scratch-daemon.ts";
import { bakedMemoryMib, buildBase, buildTiny } from "./support/snapshots.ts";
import { VersionProbe } from "./support/version-probe.ts";

const { values: flags } = parseArgs({ options: { ...commonOptions, guests: { type: "string" } } });
const run = new Run("hostile", flags);
const guests = Number(flags.guests ?? run.pick({ tiny: 1, quick: 4, full: 8 }));
const usedWays = run.pick<readonly Way[]>({ tiny: ["lying", "order"], quick: ways, full: ways });
const calmMs = run.pick({ tiny: 200, quick: 3000, full: 10_000 });
const kernelNames = Object.keys(kernelAttacks).slice(0, run.pick({ tiny: 1, quick: 99, full: 99 }));
/** A call that takes longer has no deadline in the daemon. */
const callSecs = 120;
const mib = 1024 * 1024;
const maxVersionMs = 250;
const maxGrowthMib = 150;

type Answers = Map<string, number>;
type Outcome = {
  name: string;
  n: number;
  version: number[];
  grownMib: number;
  siblings: number[];
  answers: Answers;
  seconds: number;
};

/** Counts how the call ended. */
async function tally(answers: Answers, call: Promise<unknown>): Promise<void> {
  let outcome = "ok";
  try {
    await deadline("an answer", callSecs, call);
  } catch (error) {
    if (error instanceof DeadlineError) outcome = "none";
    else if (error instanceof AppError) outcome = error.code;
    else throw error;
  }
  answers.set(outcome, (answers.get(outcome) ?? 0) + 1);
}

/** All calls at once; a guest that has lost its machine is replaced for the calls that it could not get. */
async function attackIn(forkd: Forkd, way: Way, answers: Answers): Promise<void> {
  let left = [...targets];
  while (left.length > 0) {
    const sandbox = await forkd.create("impostor");
    await attack(sandbox, way, targets);
    // One at a time where an answer costs the guest its machine, so that every answer is seen.
    const isViolation = way === "lying" || way === "order";
    const batch = left.slice(0, isViolation ? 1 : left.length);
    left = left.slice(batch.length);
    await Promise.all(batch.map((target) => tally(answers, calls[target](sandbox))));
    await sandbox.kill();
  }
}

async function attackFromKernel(forkd: Forkd, tag: string, answers: Answers): Promise<void> {
  await using sandbox = await forkd.create(tag);
  for (const name of kernelNames) await tally(answers, kernelAttacks[name]?.(sandbox) ?? Promise.resolve());
}

/** Measures the daemon and a sandbox beside while `work` runs. */
async function measure(
  daemon: ScratchDaemon,
  bystander: Sandbox,
  part: { name: string; n: number; work: (answers: Answers) => Promise<unknown> },
): Promise<Outcome> {
  const rss = () => rssBytes(daemon.pid);
  const [before, begun] = [rss(), performance.now()];
  const siblings: number[] = [];
  const answers: Answers = new Map();
  const probe = new VersionProbe(daemon.socket);
  let [peak, isOver] = [before, false];
  const timer = setInterval(() => (peak = Math.max(peak, rss())), 20);
  const watching = (async () => {
    while (!isOver) {
      const asked = performance.now();
      await bystander.commands.run(["true"], { check: true });
      siblings.push(performance.now() - asked);
      await rest(20);
    }
  })();
  try {
    await Promise.all([part.work(answers).finally(() => (isOver = true)), watching]);
  } finally {
    clearInterval(timer);
  }
  const seconds = (performance.now() - begun) / 1000;
  const version = await probe.stop();
  const { name, n } = part;
  return { name, n, version, grownMib: (peak - before) / mib, siblings, answers, seconds };
}

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function faultsIn(answers: Answers): number {
  const isFault = (code: string) =>
    code === "none" || (code in errorCodes && errorCodes[code as keyof typeof errorCodes].status === 500);
  return [...answers].filter(([code]) => isFault(code)).reduce((sum, [, times]) => sum + times, 0);
}

function record({ name, n, version, grownMib, siblings, answers, seconds }: Outcome, rows: Rows): void {
  const row = {
    case: name,
    n,
    wall_ms: version.at(-1) ?? 0,
    version_p50_ms: percentile(version, 0.5),
    version_p99_ms: percentile(version, 0.99),
    version_count: version.length,
    grown_mib: Math.max(0, grownMib),
    sibling_max_ms: Math.max(0, ...siblings),
    sibling_count: siblings.length,
    seconds,
    answers: Object.fromEntries(answers),
  };
  rows.add(row, `${grownMib.toFixed(0)} MiB, ${JSON.stringify(row.answers)}`);
}

function lineOf({ name, n, version, grownMib, siblings, answers }: Outcome): string[] {
  return [
    name,
    String(n),
    number(percentile(version, 0.5)),
    number(percentile(version, 0.99)),
    number(version.at(-1) ?? 0, 0),
    number(grownMib, 0),
    String(siblings.length),
    number(Math.max(0, ...siblings), 0),
    [...answers].map(([code, times]) => `${code} ${times}`).join(", ") || "none",
  ];
}

function targetsOf(outcomes: readonly Outcome[]): Target[] {
  const worst = (of: (outcome: Outcome) => number) => Math.max(...outcomes.map(of));
  return [
    {
      figure: "longest /version",
      measured: worst(({ version }) => version.at(-1) ?? 0),
      limit: maxVersionMs,
      unit: "ms",
    },
    {
      figure: "growth of the daemon",
      measured: worst(({ grownMib }) => grownMib),
      limit: maxGrowthMib,
      unit: "MiB",
    },
    {
      figure: "calls with status 500 or without an answer",
      measured: worst(({ answers }) => faultsIn(answers)),
      limit: 0,
    },
  ];
}

await runBench(async () => {
  const rows = run.rows({ guests });
  await using daemon = await startScratchDaemon(run, { FORKD_MAX_SANDBOXES: "40" });
  const { forkd } = daemon;
  const tiny = await buildTiny(run, daemon);
  const python = await buildBase(run, daemon, run.pick({ tiny: bakedMemoryMib, quick: 256, full: 256 }));
  await makeImpostor(forkd, tiny, "impostor");
  const bystander = await forkd.create(tiny);
  const parts = [
    { name: "calm", n: 0, work: () => rest(calmMs) },
    ...usedWays.map((way) => ({
      name: way,
      n: guests,
      work: (answers: Answers) =>
        Promise.all(Array.from({ length: guests }, () => attackIn(forkd, way, answers))),
    })),
    { name: "kernel", n: 1, work: (answers: Answers) => attackFromKernel(forkd, python, answers) },
  ];
  const outcomes: Outcome[] = [];
  for (const part of parts) {
    const outcome = await measure(daemon, bystander, part);
    record(outcome, rows);
    outcomes.push(outcome);
  }
  const head = [
    "guests that are",
    "n",
    "/version p50",
    "p99",
    "longest",
    "daemon grew, MiB",
    "sibling execs",
    "longest",
    "answers",
  ];
  const text = [
    `${guests} guests at once that break the agent protocol in one way, in all their answers, and one whose code breaks the kernel protocol (${rows.load()}${run.remark}). Times in ms; \`/version\` is asked every 10 ms by a thread of the benchmark on the same machine.`,
    targetTable(lossesFirst(targetsOf(outcomes))),
    markdownTable(head, outcomes.map(lineOf)),
  ].join("\n\n");
  publish(run, text, rows);
});
