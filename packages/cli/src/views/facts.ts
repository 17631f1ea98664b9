/** Names and values of one thing, one per line, as `info` prints them. */
import type { Output } from "../terminal/output.ts";
import { clean, formatAge } from "../terminal/table.ts";

export type Fact = readonly [name: string, value: string];

/** One entry, or none if the value is not known. */
export function factsOf(name: string, value: string | undefined): Fact[] {
  return value === undefined ? [] : [[name, value]];
}

export function printFacts(out: Output, facts: readonly Fact[]): void {
  const width = Math.max(...facts.map(([name]) => name.length));
  for (const [name, value] of facts) out.line(`${name.padEnd(width)}  ${clean(value)}`);
}

/** "2026-01-31T12:00:00.000Z (5m ago)" */
export function formatTime(unix: number): string {
  return `${new Date(unix * 1000).toISOString()} (${formatAge(unix)})`;
}
