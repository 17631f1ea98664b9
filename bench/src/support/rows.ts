/** Rows of a benchmark: written raw as JSON lines, shown as medians and ratios. */
import { appendFileSync } from "node:fs";
import { cpus, loadavg, release, totalmem } from "node:os";
import { join } from "node:path";
import { checkHead, checkRow, type BenchName, type Row } from "./row-shapes.ts";

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const high = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? high : (high + (sorted[middle - 1] ?? high)) / 2;
}

/** Median time of one case. */
export function medianOf(rows: readonly Row[], name: string, n: number): number {
  return median(rows.filter((row) => row.case === name && row.n === n).map((row) => row.wall_ms));
}

export class Rows {
  readonly path: string;
  readonly all: Row[] = [];
  readonly #bench: BenchName;
  readonly #loadBefore = currentLoad();

  constructor(bench: BenchName, dir: string, facts: Record<string, unknown>) {
    this.#bench = bench;
    this.path = join(dir, `${bench}-${new Date().toISOString().replaceAll(/[:.]/g, "-")}.jsonl`);
    const [cpu] = cpus();
    const host = {
      cores: cpus().length,
      cpu: cpu?.model ?? "unknown",
      memory_bytes: totalmem(),
      kernel: release(),
    };
    const head = { bench, host, load: this.#loadBefore, ...facts };
    checkHead(bench, head);
    appendFileSync(this.path, `${JSON.stringify(head)}\n`);
  }

  /** Throws if the row does not match the shape in row-shapes.ts. `note` is printed, not kept. */
  add(row: Omit<Row, "bench">, note = ""): void {
    const full = { bench: this.#bench, ...row } as Row;
    checkRow(this.#bench, full);
    this.all.push(full);
    appendFileSync(this.path, `${JSON.stringify(full)}\n`);
    console.error(
      `    ${full.case} n=${full.n}: ${full.wall_ms.toFixed(1)} ms${note === "" ? "" : `, ${note}`}`,
    );
  }

  /** Load of one minute. The first figure is the load that other programs made. */
  load(): string {
    return `load ${this.#loadBefore.toFixed(1)} before, ${currentLoad().toFixed(1)} after`;
  }

  median(name: string, n: number): number {
    return medianOf(this.all, name, n);
  }
}

function currentLoad(): number {
  return loadavg()[0] ?? 0;
}
