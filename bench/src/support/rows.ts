/** Rows of a benchmark: kept raw as JSON lines, shown as medians and ratios. */
import { appendFileSync, mkdirSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export type Row = { bench: string; case: string; n: number; wall_ms: number } & Record<string, unknown>;

export const resultsDir = fileURLToPath(new URL("../../results", import.meta.url));

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const high = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? high : (high + (sorted[middle - 1] ?? high)) / 2;
}

export class Rows {
  readonly path: string;
  readonly all: Row[] = [];
  readonly #bench: string;
  readonly #loadBefore = currentLoad();

  constructor(bench: string, facts: Record<string, unknown>) {
    mkdirSync(resultsDir, { recursive: true });
    this.#bench = bench;
    this.path = join(resultsDir, `${bench}-${new Date().toISOString().replaceAll(/[:.]/g, "-")}.jsonl`);
    const host = { cores: cpus().length, cpu: cpus()[0]?.model, memory_bytes: totalmem(), kernel: release() };
    appendFileSync(this.path, `${JSON.stringify({ bench, host, load: this.#loadBefore, ...facts })}\n`);
  }

  /** `note`: for whoever watches */
  add(row: Omit<Row, "bench">, note = ""): void {
    const full = { bench: this.#bench, ...row } as Row;
    this.all.push(full);
    appendFileSync(this.path, `${JSON.stringify(full)}\n`);
    console.error(
      `    ${full.case} n=${full.n}: ${full.wall_ms.toFixed(1)} ms${note === "" ? "" : `, ${note}`}`,
    );
  }

  /** Of one minute; the first is that of others. */
  load(): string {
    return `load ${this.#loadBefore.toFixed(1)} before, ${currentLoad().toFixed(1)} after`;
  }

  median(name: string, n: number): number {
    return median(this.all.filter((row) => row.case === name && row.n === n).map((row) => row.wall_ms));
  }
}

function currentLoad(): number {
  return loadavg()[0] ?? Number.NaN;
}

/** A plain table for the terminal. */
export function table(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...lines.map((line) => (line[column] ?? "").length)),
  );
  const render = (line: readonly string[]) =>
    line
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd();
  return [render(head), render(widths.map((width) => "-".repeat(width))), ...lines.map(render)].join("\n");
}
