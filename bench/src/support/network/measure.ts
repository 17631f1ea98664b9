/** Many measurements of one kind as one row. */
import { median, type Rows } from "../rows.ts";

/** The value that this share of the measurements does not exceed. */
export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** Adds the median of the times with their p99; n is how many there are. */
export function addTimes(
  rows: Rows,
  name: string,
  times: readonly number[],
  more: Record<string, unknown> = {},
): void {
  const p99 = percentile(times, 0.99);
  rows.add(
    { case: name, n: times.length, wall_ms: median(times), p99_ms: p99, ...more },
    `p99 ${p99.toFixed(1)}`,
  );
}

/** Milliseconds that the work takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

/** Measures all in turns, `rounds` times, and returns the times of each. */
export async function inRounds<K extends string>(
  rounds: number,
  contenders: Readonly<Record<K, () => Promise<number[]>>>,
): Promise<Record<K, number[]>> {
  // Cast: every key of the object gets a list.
  const names = Object.keys(contenders) as K[];
  const all = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<K, number[]>;
  for (let round = 0; round < rounds; round++) {
    // The first of a round meets what the round before left.
    for (const name of round % 2 === 0 ? names : names.toReversed())
      all[name].push(...(await contenders[name]()));
  }
  return all;
}
