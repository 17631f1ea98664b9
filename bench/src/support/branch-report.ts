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

/** timings of what is done while the guest runs */
const beforeStop = new Set(["precopy", "quiesce"]);

type Select = (fields: Record<string, unknown>) => Selection;

function cellOf({ memoryMib, divergedMib }: Shape): Record<string, unknown> {
  return { memory_mib: memoryMib, diverged_mib: divergedMib };
}

export function branchReport(all: readonly Row[], facts: Facts): string {
  const of: Select = (fields) => new Selection(all, fields);
  const shapes = shapesOf(all);
  const targets = [
    ...pauseTargets(of, shapes),
    ...flatTargets(of, shapes),
    ...gapTargets(of, shapes),
    ...rowTargets(of, facts.inRow),
    ...answerTargets(of, shapes),
    ...childTargets(of, facts.children),
    ...sizeTargets(of, shapes),
  ];
  return [
    `BRANCH of a running sandbox (${facts.facts}). Branches in a row and children: ${name(facts.plain)}.`,
    targetTable(targets.filter(({ measured }) => Number.isFinite(measured))),
    ...(shapes.length === 0 ? [] : [...cellTable(of, shapes), ...partTable(of, shapes)]),
  ].join("\n\n");
}

function pauseTargets(of: Select, shapes: readonly Shape[]): Target[] {
  const pause = (shape: Shape) => of({ case: "idle", mode: "live", ...cellOf(shape) }).median("pause_ms");
  return [
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
  ];
}

/** What a guest has changed, and what it changes meanwhile, must hardly lengthen its pause. */
function flatTargets(of: Select, shapes: readonly Shape[]): Target[] {
  return shapes.flatMap((shape) => {
    const base = of({ case: "idle", mode: "live", ...cellOf({ ...shape, divergedMib: 0 }) }).median(
      "pause_ms",
    );
    const idle = of({ case: "idle", mode: "live", ...cellOf(shape) }).median("pause_ms");
    const writing = of({ case: "writing", ...cellOf(shape) }).median("pause_ms");
    return [
      ...(shape.divergedMib === 0
        ? []
        : [ratio(`stop→cont / with nothing diverged, ${name(shape)}`, 1.5, [idle, base])]),
      ratio(`stop→cont while it writes / idle with nothing diverged, ${name(shape)}`, 3, [writing, base]),
    ];
  });
}

function gapTargets(of: Select, shapes: readonly Shape[]): Target[] {
  const gapRatio = (kind: string, shape: Shape, figure: string) =>
    of({ case: kind, mode: "live", ...cellOf(shape) }).median(
      (row) => Number(row[figure]) / Number(row["pause_ms"]),
    );
  return shapes.flatMap((shape) =>
    ["heartbeat", "writing"].map((kind) => ({
      figure: `largest gap seen / stop→cont, ${name(shape)}${kind === "writing" ? ", writing" : ""}`,
      measured: gapRatio(kind, shape, "gap_ms"),
      limit: 1.3,
      detail: `at the stop alone ${number(gapRatio(kind, shape, "gap_at_stop_ms"), 2)}`,
    })),
  );
}

function rowTargets(of: Select, inRow: number): Target[] {
  return ["pause_ms", "total_ms"].map((figure) => {
    const first = of({ case: "in a row", index: 1 }).median(figure);
    const last = of({ case: "in a row", index: inRow }).median(figure);
    const label = figure === "pause_ms" ? "stop→cont" : "total";
    return {
      figure: `${inRow} in a row, last / first, ${label}`,
      measured: last / first,
      limit: 1.3,
      detail: `${number(first)} → ${number(last)} ms`,
    };
  });
}

function answerTargets(of: Select, shapes: readonly Shape[]): Target[] {
  return shapes.map((shape) => ({
    figure: `wait: false, cont → answer, ${name(shape)}`,
    measured: of({ case: "no wait", ...cellOf(shape) }).median("answered_after_ms"),
    limit: 10,
    unit: "ms",
  }));
}

function childTargets(of: Select, children: number): Target[] {
  return [
    ratio("child right after a waiting branch / of the base", 1.1, [
      of({ case: "fork right after a branch", n: 1 }).median("wall_ms"),
      of({ case: "fork of base", n: 1 }).median("wall_ms"),
    ]),
    ratio(`branch + ${children} children / fork ${children}`, 1.5, [
      of({ case: "branch with children", n: children }).median("wall_ms"),
      of({ case: "fork of base", n: children }).median("wall_ms"),
    ]),
  ];
}

function sizeTargets(of: Select, shapes: readonly Shape[]): Target[] {
  return shapes.map((shape) => ({
    figure: `layer on disk / diverged, ${name(shape)}`,
    measured: of({ case: "idle", mode: "live", ...cellOf(shape) }).median(
      (row) => Number(row["physical_bytes"]) / Number(row["logical_bytes"]),
    ),
    limit: 1.1,
  }));
}

function cellTable(of: Select, shapes: readonly Shape[]): string[] {
  const lines = shapes.flatMap((shape) =>
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
  const head = [
    "MiB",
    "diverged",
    "mode",
    ...["least pause", "pause", "resumed", "stall", "total"],
    ...["beating: pause", "stall", "seen", "stop", "calm", "guest"],
  ];
  return [
    "Milliseconds, for an idle guest and for one with a heartbeat of 1 ms. Seen: the largest time between two beats at the reader from request to answer, less the usual time; stop: the same until the source runs again; calm: the same in as much time before the request; guest: the largest time by the guest's clock, which stops with the VM.",
    markdownTable(head, lines),
  ];
}

function partTable(of: Select, shapes: readonly Shape[]): string[] {
  const partNames = [...new Set(of({ case: "idle" }).rows.flatMap((row) => Object.keys(timings(row))))];
  const lines = shapes.map((shape) => {
    const idle = of({ case: "idle", mode: "live", ...cellOf(shape) });
    const median = (figure: (row: Row) => number, digits?: number) => number(idle.median(figure), digits);
    return [
      String(shape.memoryMib),
      String(shape.divergedMib),
      median((row) => Number(row["logical_bytes"]) / mib),
      number(idle.median("resumed_ms") - idle.median("pause_ms")),
      ...partNames.map((part) => median((row) => timing(row, part), 2)),
      median((row) => Number(row["pause_ms"]) - sumOfTimings(row), 2),
      median((row) => Number(row["total_ms"]) - Number(row["resumed_ms"])),
    ];
  });
  const head = ["MiB", "diverged", "layer MiB", "before stop", ...partNames, "cont", "after cont"];
  return ["Where the time goes, mode live, ms.", markdownTable(head, lines)];
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
  return Object.entries(timings(row))
    .filter(([part]) => !beforeStop.has(part))
    .reduce((sum, [, ms]) => sum + ms, 0);
}
