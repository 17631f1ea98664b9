/** Rows of the spawn benchmark → its report and its chart. */
import type { Bar, Chart } from "./chart.ts";
import { markdownTable, number, targetTable, type Target } from "./report.ts";
import type { Row } from "./row-shapes.ts";
import { medianOf } from "./rows.ts";
import { traceTable } from "./trace-report.ts";

export type SpawnFacts = {
  accelerator: string;
  rounds: number;
  parallel: number;
  /** of the host */
  cores: number;
  counts: readonly number[];
  memoryMib: number;
  qemu: string;
  /** load of the host, size of the run */
  remarks: string;
};

const ours = "forkd";
const sameVm = "the same VM without forkd";
const containers = "a container, no VM";

type Contender = { name: string; label: string; series: string };

/** Contenders in the order of tables and charts; those without rows are left out. */
function contendersOf(rows: readonly Row[]): Contender[] {
  const all = [
    { name: "fork", label: "fork", series: ours },
    { name: "fork, ready", label: "fork, ready children", series: ours },
    { name: "floor", label: "floor: bare QEMU", series: sameVm },
    { name: "cold", label: "cold boot", series: sameVm },
    { name: "bubblewrap", label: "bubblewrap", series: containers },
    { name: "runc", label: "runc", series: containers },
  ];
  return all.filter(({ name }) => rows.some((row) => row.case === name));
}

export function spawnChart(rows: readonly Row[], facts: SpawnFacts): Chart {
  const contenders = contendersOf(rows);
  const { rounds, accelerator, parallel, cores } = facts;
  return {
    title: "Time until all sandboxes have answered a numpy call",
    subtitle: `Median of ${roundsOf(rounds)}, ${parallel} at a time on ${cores} cores, ${accelerator === "tcg" ? "software emulation (TCG)" : "KVM"}. Shorter is better.`,
    axis: "wall time",
    series: [ours, sameVm, containers].filter((name) => contenders.some(({ series }) => series === name)),
    groups: facts.counts.map((n) => ({
      title: n === 1 ? "1 sandbox" : `${n} sandboxes`,
      bars: contenders
        .map(({ name, label, series }): Bar => ({ label, series, value: medianOf(rows, name, n) }))
        .filter(({ value }) => value > 0),
    })),
  };
}

function roundsOf(rounds: number): string {
  return rounds === 1 ? "1 round" : `${rounds} rounds`;
}

/** The chart in the colours of the page, as HTML in Markdown. */
function chartOf(contenders: readonly Contender[]): string {
  const alt = `Wall times of ${contenders.map(({ label }) => label).join("; ")}`;
  return [
    "<picture>",
    '  <source media="(prefers-color-scheme: dark)" srcset="spawn-dark.svg">',
    `  <img src="spawn-light.svg" alt="${alt}">`,
    "</picture>",
  ].join("\n");
}

const waterfall = [
  "<picture>",
  '  <source media="(prefers-color-scheme: dark)" srcset="spawn-trace-dark.svg">',
  '  <img src="spawn-trace-light.svg" alt="Steps of a fork; the table has the figures">',
  "</picture>",
].join("\n");

function targetsOf(rows: readonly Row[], largest: number): Target[] {
  const wall = (name: string, n: number) => medianOf(rows, name, n);
  const costs = rows.find((row) => row.case === "costs");
  const refill = rows.find((row) => row.case === "refill");
  const cost = (name: string) => Number(costs?.[name] ?? Number.NaN);
  const steps = rows.filter(({ case: name }) => name.startsWith("children "));
  return [
    { figure: "cold / fork, N=1", measured: wall("cold", 1) / wall("fork", 1), limit: 50, atLeast: true },
    {
      figure: "cold / fork of a ready child, N=1",
      measured: wall("cold", 1) / wall("fork, ready", 1),
      limit: 500,
      atLeast: true,
    },
    { figure: "fork of a ready child, N=1", measured: wall("fork, ready", 1), limit: 10, unit: "ms" },
    {
      figure: `fork of ready children / bubblewrap, N=${largest}`,
      measured: wall("fork, ready", largest) / wall("bubblewrap", largest),
      limit: 0.1,
    },
    {
      figure: `command while ${refill?.n ?? 0} ready children are made / alone`,
      measured: Number(refill?.["command_refill_ms"]) / Number(refill?.["command_idle_ms"]),
      limit: 1.2,
    },
    {
      figure: `fork / floor, N=${largest}`,
      measured: wall("fork", largest) / wall("floor", largest),
      limit: 1.05,
    },
    {
      figure: `fork / bubblewrap, N=${largest}`,
      measured: wall("fork", largest) / wall("bubblewrap", largest),
      limit: 1,
    },
    {
      figure: "guest memory that diverged per child",
      measured: cost("diverged_mib_per_child"),
      limit: 1.5,
      unit: "MiB",
    },
    { figure: "idle child", measured: cost("idle_percent_of_core"), limit: 0.5, unit: "% of a core" },
    {
      figure: `daemon RSS with ${costs?.n ?? 0} children`,
      measured: cost("daemon_rss_mib"),
      limit: 143,
      unit: "MiB",
    },
    { figure: "REST adds to an eval", measured: cost("eval_rest_adds_ms"), limit: 2, unit: "ms" },
    {
      figure: `last ${steps.at(-1)?.n ?? 0} / first ${steps[0]?.n ?? 0} of all children`,
      measured: steps.length > 1 ? (steps.at(-1)?.wall_ms ?? 0) / (steps[0]?.wall_ms ?? 0) : Number.NaN,
      limit: 1.2,
    },
  ];
}

export function spawnReport(rows: readonly Row[], facts: SpawnFacts): string {
  const { counts, rounds, parallel, accelerator, memoryMib, qemu, remarks } = facts;
  const lines = contendersOf(rows).map(({ name, label }) => [
    label,
    ...counts.map((n) => number(medianOf(rows, name, n), medianOf(rows, name, n) < 100 ? 1 : 0)),
  ]);
  const costs = rows.find((row) => row.case === "costs");
  const live = rows.filter(({ case: name }) => name.endsWith("one eval each"));
  const absent = rows.filter((row) => row.case === "absent");
  const notes = [
    `PSS of a child: ${number(Number(costs?.["pss_mib_per_child"]))} MiB. An eval takes ${number(Number(costs?.["eval_agent_ms"]), 2)} ms without REST.`,
    ...live.map(({ n, wall_ms }) => `One eval in each of ${n} live children: ${number(wall_ms, 0)} ms.`),
    ...absent.map((row) => `Not measured: ${String(row["contender"])} (${String(row["reason"])}).`),
  ];
  return [
    `N sandboxes ready and answered, wall ms: median of ${roundsOf(rounds)} in turns, ${parallel} at a time (guest of ${memoryMib} MiB with numpy, ${accelerator}, ${qemu}, ${remarks}).`,
    chartOf(contendersOf(rows)),
    markdownTable(["ready and answered, ms", ...counts.map((n) => `N=${n}`)], lines),
    targetTable(targetsOf(rows, Math.max(...counts))),
    notes.join(" "),
    waterfall,
    traceTable(rows),
  ].join("\n\n");
}
