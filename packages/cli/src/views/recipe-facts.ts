/** A recipe of the shelf as a row of a table, and in full. */
import type { DemoResult } from "../shelf/results.ts";
import type { EntryContents, ShelfEntry } from "../shelf/shelf.ts";
import { formatAge, type Column } from "../terminal/table.ts";
import { factsOf, formatTime, type Fact } from "./facts.ts";

export type RecipeRow = Pick<ShelfEntry, "name" | "kind" | "description"> & {
  /** What the demo uses; the status is null if there is no snapshot with this tag. */
  readonly snapshot: { readonly tag: string; readonly status: string | null };
  readonly demo: string | null;
  /** Last result here. */
  readonly last: DemoResult | null;
  /** Result that came with forkd. */
  readonly released: DemoResult | null;
};

export const recipeColumns: readonly Column<RecipeRow>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "SNAPSHOT", value: describeSnapshot },
  { title: "DEMO", value: describeDemo },
  { title: "WHEN", value: (row) => onResult(row, ({ at_unix }) => formatAge(at_unix)), drop: 3 },
  { title: "WHERE", value: (row) => onResult(row, () => (row.last ? "here" : "release")), drop: 2 },
  { title: "VERSION", value: (row) => onResult(row, ({ version }) => version), drop: 1 },
  { title: "SECONDS", value: (row) => onResult(row, ({ seconds }) => seconds.toFixed(1)), align: "right" },
  { title: "DESCRIPTION", value: ({ description }) => description },
];

/** "ready", "not built", or the same with the name of another recipe. */
function describeSnapshot({ name, snapshot: { tag, status } }: RecipeRow): string {
  const state = status ?? "not built";
  return tag === name ? state : `${tag}: ${state}`;
}

function describeDemo(row: RecipeRow): string {
  if (row.demo === null) return "none";
  const result = row.last ?? row.released;
  return result === null ? "never run" : result.ok ? "ok" : "failed";
}

function onResult(row: RecipeRow, describe: (result: DemoResult) => string): string {
  const result = row.demo === null ? null : (row.last ?? row.released);
  return result === null ? "-" : describe(result);
}

export function factsOfRecipe(row: RecipeRow, { summary, files, recipe }: EntryContents): Fact[] {
  return [
    ["name", row.name],
    ["description", row.description],
    ...factsOf("summary", summary || undefined),
    ["snapshot", `${row.snapshot.tag}: ${row.snapshot.status ?? "not built"}`],
    ...factsOf("packages", listOf(valueIn(recipe["base"], "packages"))),
    ...factsOf("languages", listOf(namesIn(recipe["languages"]))),
    ...factsOf("memory", numberOf(recipe["memory_mib"], "MiB")),
    ...factsOf("disk", numberOf(recipe["disk_mib"], "MiB")),
    ["files", files.join(", ")],
    ["demo", row.demo ?? "none"],
    ...resultFacts("last demo here", row.last),
    ...resultFacts("demo of the release", row.released),
  ];
}

function resultFacts(title: string, result: DemoResult | null): Fact[] {
  if (result === null) return [];
  const { ok, at_unix, version, seconds, accelerator, facts, error } = result;
  const outcome = ok ? "ok" : `failed: ${error ?? ""}`;
  const where = `${formatTime(at_unix)}, forkd ${version}, ${accelerator}`;
  return [
    [title, `${outcome} in ${seconds.toFixed(1)} s, ${where}`],
    ...Object.entries(facts).map(([name, value]): Fact => [
      `  ${name}`,
      typeof value === "string" ? value : JSON.stringify(value),
    ]),
  ];
}

function valueIn(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null && key in value
    ? (value as Record<string, unknown>)[key]
    : undefined;
}

function namesIn(value: unknown): string[] {
  return typeof value === "object" && value !== null ? Object.keys(value) : [];
}

function listOf(value: unknown): string | undefined {
  return Array.isArray(value) && value.length > 0 ? value.map(String).join(", ") : undefined;
}

function numberOf(value: unknown, unit: string): string | undefined {
  return typeof value === "number" ? `${value} ${unit}` : undefined;
}
