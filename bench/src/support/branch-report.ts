/** Rows of the branch benchmark → its report. */
import { markdownTable, number, targetTable, type Target } from "./report.ts";
import type { Row } from "./row-shapes.ts";
import { median } from "./rows.ts";

type Shape = { memoryMib: number; divergedMib: number };
type Facts = { facts: string; plain: Shape; inRow: number; children: number };
const mib = 1024 * 1024;
const modes = ["live", "diff", "full"];
/** stop to cont of an idle guest, and per MiB that it changed */
const pauseMs = { idle: 15, perMib: 1 };

/** Figures of the rows that have these fields. */
class Selection {
  readonly rows: readonly Row[];

  constructor(rows: readonly Row[], fields: Record<string, unknown>) {
    this.rows = rows.filter((row) => Object.entries(fields).every(([name, value]) => row[name] === value));
  }

  least(figure: string): number {
    return Math.min(...this.rows.map((row) => Number(row[figure])));
  }

  median(figure: string | ((row: Row) => unknown)): number {
    const values = this.rows.map((row) => (typeof figure === "string" ? row[figure] : figure(row)));
    return median(values.filter((value) => typeof value === "number"));
  }
}

export function branchReport(all: readonly Row[], { facts, plain, inRow, children }: Facts): string {
  const of = (fields: Record<string, unknown>) => new Selection(all, fields);
  const shapes = shapesOf(all);
  const cellOf = ({ memoryMib, divergedMib }: Shape) => ({
    memory_mib: memoryMib,
    diverged_mib: divergedMib,
  });
  const pause = (shape: Shape) => of({ case: "idle", mode: "live", ...cellOf(shape) }).median("pause_ms");
  const gapRatio = (shape: Shape, figure: string) =>
    of({ case: "heartbeat", mode: "live", ...cellOf(shape) }).median(
      (row) => Number(row[figure]) / Number(row["pause_ms"]),
    );
  const targets: Target[] = [
    {
      figure: "stop→cont, idle, 512 MiB",
      measured: pause({ memoryMib: 512, divergedMib: 0 }),
      limit: pauseMs.idle,
      unit: "ms",
    },
    ...shapes
      .filter(({ divergedMib }) => divergedMib > 0)
      .map((shape) => ({
        figure: `stop→cont, ${name(shape)}`,
        measured: pause(shape),
        limit: pauseMs.idle + pauseMs.perMib * shape.divergedMib,
        unit: "ms",
      })),
    ...shapes
      .filter(({ memoryMib }) => memoryMib === 256)
      .map(({ divergedMib }) => ({
        figure: `stop→cont, 4096 / 256 MiB, ${divergedMib} diverged`,
        measured: pause({ memoryMib: 4096, divergedMib }) / pause({ memoryMib: 256, divergedMib }),
        limit: 2,
      })),
    ...shapes.map((shape) => ({
      figure: `largest gap seen / stop→cont, ${name(shape)}`,
      measured: gapRatio(shape, "gap_ms"),
      limit: 1.3,
      detail: `at the stop alone ${number(gapRatio(shape, "gap_at_stop_ms"), 2)}`,
    })),
    ...["pause_ms", "total_ms"].map((figure) => {
      const first = of({ case: "in a row", index: 1 }).median(figure);
      const last = of({ case: "in a row", index: inRow }).median(figure);
      const label = figure === "pause_ms" ? "stop→cont" : "total";
      return {
        figure: `${inRow} in a row, last / first, ${label}`,
        measured: last / first,
        limit: 1.3,
        detail: `${number(first)} → ${number(last)} ms`,
      };
    }),
    ...shapes.map((shape) => ({
      figure: `wait: false, cont → answer, ${name(shape)}`,
      measured: of({ case: "no wait", ...cellOf(shape) }).median("answered_after_ms"),
      limit: 10,
      unit: "ms",
    })),
    ratio("child right after a waiting branch / of the base", 1.1, [
      of({ case: "fork right after a branch", n: 1 }).median("wall_ms"),
      of({ case: "fork of base", n: 1 }).median("wall_ms"),
    ]),
    ratio(`branch + ${children} children / fork ${children}`, 1.5, [
      of({ case: "branch with children", n: children }).median("wall_ms"),
      of({ case: "fork of base", n: children }).median("wall_ms"),
    ]),
    ...shapes.map((shape) => ({
      figure: `layer on disk / diverged, ${name(shape)}`,
      measured: of({ case: "idle", mode: "live", ...cellOf(shape) }).median(
        (row) => Number(row["physical_bytes"]) / Number(row["logical_bytes"]),
      ),
      limit: 1.1,
    })),
  ];
  const measured = targets.filter(({ measured: value }) => Number.isFinite(value));
  const cells = shapes.flatMap((shape) =>
    modes.map((mode) => {
      const idle = of({ case: "idle", mode, ...cellOf(shape) });
      const beating = of({ case: "heartbeat", mode, ...cellOf(shape) });
      return [
        String(shape.memoryMib),
        String(shape.divergedMib),
        mode,
        number(idle.least("pause_ms")),
        ...["pause_ms", "resumed_ms", "stall_ms", "total_ms"].map((figure) => number(idle.median(figure))),
        ...["pause_ms", "stall_ms", "gap_ms", "gap_at_stop_ms", "gap_calm_ms", "gap_guest_clock_ms"].map(
          (figure) => number(beating.median(figure)),
        ),
      ];
    }),
  );
  const partNames = [...new Set(of({ case: "idle" }).rows.flatMap((row) => Object.keys(timings(row))))];
  const parts = shapes.map((shape) => {
    const idle = of({ case: "idle", mode: "live", ...cellOf(shape) });
    return [
      String(shape.memoryMib),
      String(shape.divergedMib),
      number(idle.median((row) => Number(row["logical_bytes"]) / mib)),
      number(idle.median("resumed_ms") - idle.median("pause_ms")),
      ...partNames.map((part) =>
        number(
          idle.median((row) => timing(row, part)),
          2,
        ),
      ),
      number(
        idle.median((row) => Number(row["pause_ms"]) - sumOfTimings(row)),
        2,
      ),
      number(idle.median((row) => Number(row["total_ms"]) - Number(row["resumed_ms"]))),
    ];
  });
  const tables = [
    "Milliseconds, of an idle guest and of one with a heartbeat of 1 ms. Seen: the largest time between two beats at the reader from the request to the answer, less the usual; stop: the same up to the moment when the source runs again; calm: in as long a time before; guest: the largest by the guest's clock, which stands still with the VM.",
    markdownTable(
      [
        "MiB",
        "diverged",
        "mode",
        ...["least pause", "pause", "resumed", "stall", "total"],
        ...["beating: pause", "stall", "seen", "stop", "calm", "guest"],
      ],
      cells,
    ),
    "Where the time goes, mode live, ms.",
    markdownTable(["MiB", "diverged", "layer MiB", "before stop", ...partNames, "cont", "after cont"], parts),
  ];
  return [
    `BRANCH of a running sandbox (${facts}). Ten in a row and children: ${name(plain)}.`,
    targetTable(measured),
    ...(shapes.length === 0 ? [] : tables),
  ].join("\n\n");
}

function ratio(figure: string, limit: number, [above, below]: readonly [number, number]): Target {
  return { figure, measured: above / below, limit, detail: `${number(above, 0)} / ${number(below, 0)} ms` };
}

function name({ memoryMib, divergedMib }: Shape): string {
  return `${memoryMib} MiB, ${divergedMib} diverged`;
}

function shapesOf(all: readonly Row[]): Shape[] {
  const found = new Map<string, Shape>();
  for (const row of all.filter((candidate) => candidate.case === "idle")) {
    const shape = { memoryMib: Number(row["memory_mib"]), divergedMib: Number(row["diverged_mib"]) };
    found.set(name(shape), shape);
  }
  return [...found.values()];
}

function timings(row: Row): Record<string, number> {
  return row["timings_ms"] as Record<string, number>;
}

function timing(row: Row, part: string): number {
  return timings(row)[part] ?? 0;
}

function sumOfTimings(row: Row): number {
  return Object.values(timings(row)).reduce((sum, ms) => sum + ms, 0);
}
