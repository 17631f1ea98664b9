/** Rows of the benchmark of clients → its report. */
import { callNames } from "./clients/calls.ts";
import { directions, ways } from "./clients/files.ts";
import { lossesFirst, markdownTable, number, targetTable, type Target } from "./report.ts";
import type { Row } from "./row-shapes.ts";
import { median } from "./rows.ts";

type Facts = {
  /** of host and run */
  facts: string;
  /** of one file */
  bytes: number;
  /** of one command */
  lines: number;
};

/** Median of a figure over the rows of one case; NaN without rows. */
function figuresOf(rows: readonly Row[]): (name: string, figure?: string) => number {
  return (name, figure = "wall_ms") =>
    median(rows.filter((row) => row.case === name).map((row) => Number(row[figure])));
}

export function clientsReport(rows: readonly Row[], { facts, bytes, lines }: Facts): string {
  const of = figuresOf(rows);
  const overhead = (name: string, sdk: string, raw: string): Target => ({
    figure: `call ${name}: ${sdk} − ${raw}`,
    measured: of(`call ${name}, ${sdk}`) - of(`call ${name}, ${raw}`),
    limit: 1,
    unit: "ms",
    detail: detailOf(of(`call ${name}, ${sdk}`), "−", of(`call ${name}, ${raw}`)),
  });
  const streamed = rows.filter(({ case: name }) => name === "streams, typescript");
  const sum = (figure: string) => streamed.reduce((all, row) => all + Number(row[figure]), 0);
  const targets: Target[] = [
    ...callNames.map((name) => overhead(name, "typescript", "raw")),
    ...callNames.map((name) => overhead(name, "python", "python raw")),
    ...directions.map((direction) => file(of, direction)),
    {
      figure: "lines of concurrent commands lost or out of order",
      measured: streamed.length === 0 ? Number.NaN : sum("lost") + sum("disordered"),
      limit: 0,
      detail: `${sum("lines")} lines`,
    },
    {
      figure: "first code, E2B's SDK / ours",
      measured: of("first code, e2b") / of("first code, forkd"),
      limit: 1.2,
      detail: detailOf(of("first code, e2b"), "/", of("first code, forkd")),
    },
    {
      figure: "MCP server, start to list of tools",
      measured: of("start, mcp tools"),
      limit: 300,
      unit: "ms",
      detail: `node -e 0 takes ${number(of("start, node"), 0)} ms`,
    },
  ];
  return [
    `What clients add (${facts}).`,
    targetTable(lossesFirst(targets)),
    `One call, ms, median and p99. Raw: the same request with \`node:http\` (\`http.client\` in Python) on a connection that is kept.`,
    markdownTable(["", ...callNames.flatMap((name) => [name, "p99"])], callLines(of)),
    `A file of ${bytes / 1e6} MB in the memory of the guest, MB/s. Agent channel: the agent's protocol without a daemon.`,
    markdownTable(["", ...directions], fileLines(of)),
    `${streamed[0]?.n ?? 0} commands that print ${lines} lines each at the same time: ${number(of("streams, typescript"), 0)} ms through the SDK, ${number(of("streams, raw"), 0)} ms by hand.`,
    `A cold start: \`node -e 0\` ${number(of("start, node"), 0)} ms, \`forkd ls\` ${number(of("start, forkd ls"), 0)} ms.`,
  ].join("\n\n");
}

/** Empty where a contender is absent. */
function detailOf(above: number, sign: string, below: number): string {
  return Number.isNaN(above + below) ? "" : `${number(above, 2)} ${sign} ${number(below, 2)} ms`;
}

/** Met if the file is fast enough, or nearly as fast as the channel. */
function file(of: ReturnType<typeof figuresOf>, direction: string): Target {
  const [speed, channel] = [
    of(`${direction}, typescript`, "mb_per_s"),
    of(`${direction}, agent channel`, "mb_per_s"),
  ];
  const detail = `${number(channel, 0)} / ${number(speed, 0)} MB/s; 100 MB/s is enough`;
  return {
    figure: `file ${direction}: agent channel / SDK`,
    // A file at 100 MB/s meets the target, whatever the channel could do.
    measured: speed >= 100 ? Math.min(channel / speed, 1.5) : channel / speed,
    limit: 1.5,
    detail,
  };
}

function callLines(of: ReturnType<typeof figuresOf>): string[][] {
  return ["raw", "typescript", "python raw", "python"].map((by) => [
    by,
    ...callNames.flatMap((name) => [
      number(of(`call ${name}, ${by}`), 2),
      number(of(`call ${name}, ${by}`, "p99_ms"), 2),
    ]),
  ]);
}

function fileLines(of: ReturnType<typeof figuresOf>): string[][] {
  return ways.map((way) => [
    way,
    ...directions.map((direction) => number(of(`${direction}, ${way}`, "mb_per_s"), 0)),
  ]);
}
