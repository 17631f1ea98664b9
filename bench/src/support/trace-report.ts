/** Rows of traced children → the table and the chart of their steps. */
import { markdownTable, number } from "./report.ts";
import type { Row } from "./row-shapes.ts";
import { median } from "./rows.ts";
import { traceSteps, type TraceStep } from "./spawn-trace.ts";
import type { Step, Waterfall } from "./waterfall.ts";

type Marks = Partial<Record<TraceStep, number>>;

function tracesOf(rows: readonly Row[], n: number): Row[] {
  return rows.filter((row) => row.case === "trace" && row.n === n);
}

function countsOf(rows: readonly Row[]): number[] {
  return [...new Set(rows.filter((row) => row.case === "trace").map(({ n }) => n))];
}

/** Median length of each step. A mark may come before that of the step before: then its step is empty. */
function lengthsOf(traces: readonly Row[]): Map<TraceStep, number> {
  const names = Object.keys(traceSteps) as TraceStep[];
  const lengths = new Map<TraceStep, number[]>(names.map((name) => [name, []]));
  for (const trace of traces) {
    const marks = trace["steps"] as Marks;
    let before = 0;
    for (const name of names) {
      const at = Math.max(before, marks[name] ?? before);
      lengths.get(name)?.push(at - before);
      before = at;
    }
  }
  return new Map([...lengths].map(([name, values]) => [name, median(values)]));
}

function stepsOf(traces: readonly Row[]): Step[] {
  let from = 0;
  return [...lengthsOf(traces)].map(([name, length]) => {
    const step = { label: traceSteps[name], from, to: from + length };
    from = step.to;
    return step;
  });
}

export function traceChart(rows: readonly Row[]): Waterfall {
  return {
    title: "From the request to the first answer of a child",
    subtitle: "Median length of each step, no process started ahead.",
    groups: countsOf(rows).map((n) => ({
      title: n === 1 ? "1 child" : `one of ${n} children`,
      steps: stepsOf(tracesOf(rows, n)),
    })),
  };
}

export function traceTable(rows: readonly Row[]): string {
  const counts = countsOf(rows);
  const columns = counts.map((n) => lengthsOf(tracesOf(rows, n)));
  const names = Object.keys(traceSteps) as TraceStep[];
  const steps = names.map((name) => [
    `${name}: ${traceSteps[name]}`,
    ...columns.map((lengths) => number(lengths.get(name) ?? Number.NaN)),
  ]);
  const figure = (title: string, field: string) => [
    title,
    ...counts.map((n) => number(median(tracesOf(rows, n).map((row) => Number(row[field]))))),
  ];
  const head = ["step of one child, median ms", ...counts.map((n) => `N=${n}`)];
  return markdownTable(head, [
    ...steps,
    figure("request to first answer", "wall_ms"),
    figure("eval without REST", "eval_agent_ms"),
    figure("CPU of the VMM", "vmm_cpu_ms"),
    figure("guest memory that diverged, MiB", "diverged_mib"),
  ]);
}
