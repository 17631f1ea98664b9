/** One run of a benchmark: its size, and where it puts what it makes. */
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { BenchName } from "./row-shapes.ts";
import { Rows } from "./rows.ts";

export const repository = fileURLToPath(new URL("../../..", import.meta.url));
const cache = join(repository, ".cache");

/** Options that every benchmark has. */
export const commonOptions = {
  quick: { type: "boolean", default: false },
  tiny: { type: "boolean", default: false },
  out: { type: "string" },
  write: { type: "boolean", default: false },
} as const;
type CommonFlags = { quick: boolean; tiny: boolean; out?: string | undefined; write: boolean };

/** tiny: proves in seconds that the benchmark works. quick: figures, roughly. full: figures to keep. */
export type Size = "tiny" | "quick" | "full";

export class Run {
  readonly name: BenchName;
  readonly size: Size;
  /** copy rows, report and charts into the tree */
  readonly write: boolean;
  /** directory of rows, report and charts */
  readonly out: string;
  /** directory of the data directories of daemons */
  readonly scratch: string;
  /** data directory with the snapshots that the tests share; a tiny run builds none */
  readonly baked = join(cache, "test-data");
  /** data directory that stays: images, and the snapshot of `spawn` */
  readonly data = join(cache, "bench-data");

  constructor(name: BenchName, flags: CommonFlags) {
    if (flags.tiny && (flags.quick || flags.write)) {
      throw new Error("--tiny measures nothing: it cannot be used with --quick or --write");
    }
    this.name = name;
    this.size = flags.tiny ? "tiny" : flags.quick ? "quick" : "full";
    this.write = flags.write;
    this.out = flags.out === undefined ? join(repository, "bench/results") : resolve(flags.out);
    this.scratch = flags.out === undefined ? cache : this.out;
    for (const dir of [this.out, this.scratch]) mkdirSync(dir, { recursive: true });
    if (this.size !== "tiny") mkdirSync(this.images, { recursive: true });
  }

  /** Directory of kernels and other images that snapshots are built from. */
  get images(): string {
    return join(this.size === "tiny" ? this.baked : this.data, "images");
  }

  pick<T>(bySize: Readonly<Record<Size, T>>): T {
    return bySize[this.size];
  }

  /** Opens the file of raw rows; `facts` go into its head. */
  rows(facts: Record<string, unknown>): Rows {
    return new Rows(this.name, this.out, { size: this.size, ...facts });
  }

  /** For reports: nothing for a full run. */
  get remark(): string {
    return this.size === "full" ? "" : `; a ${this.size} run`;
  }
}
