/** The end of a benchmark: tables in Markdown, targets met or missed, and its section of RESULTS.md. */
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import type { Rows } from "./rows.ts";
import { repository, type Run } from "./run.ts";

/** A figure that must not be above its limit, or with `atLeast` not below it. */
export type Target = {
  figure: string;
  measured: number;
  limit: number;
  atLeast?: boolean;
  unit?: string;
  detail?: string;
};

export function markdownTable(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const render = (line: readonly string[]) => `| ${line.join(" | ")} |`;
  const rule = head.map((_, column) => (column === 0 ? "---" : "---:"));
  return [render(head), render(rule), ...lines.map(render)].join("\n");
}

export function number(value: number, digits = 1): string {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}

function isMet({ measured, limit, atLeast = false }: Target): boolean {
  return atLeast ? measured >= limit : measured <= limit;
}

export function targetTable(targets: readonly Target[]): string {
  const lines = targets.map((target) => {
    const { figure, measured, limit, atLeast = false, unit = "", detail = "" } = target;
    const digits = unit === "" ? 2 : 1;
    const suffix = unit === "" ? "" : ` ${unit}`;
    const outcome = Number.isFinite(measured) ? (isMet(target) ? "met" : "**MISSED**") : "not measured";
    return [
      figure,
      number(measured, digits) + suffix,
      `${atLeast ? "≥" : "≤"} ${number(limit, digits)}${suffix}`,
      outcome,
      detail,
    ];
  });
  return markdownTable(["figure", "measured", "wanted", "", ""], lines);
}

/** Missed targets first. */
export function lossesFirst(targets: readonly Target[]): Target[] {
  return [...targets].sort((one, other) => Number(isMet(one)) - Number(isMet(other)));
}

/**
 * Prints the report and writes it beside the raw rows. With `--write` it also replaces the benchmark's
 * section of RESULTS.md, and the raw rows and `charts` (paths) in bench/.
 */
export function publish(run: Run, text: string, rows: Rows, charts: readonly string[] = []): void {
  console.log(`\n${text}\n\nraw rows: ${rows.path}`);
  writeFileSync(join(run.out, `${run.name}-report.md`), `${text}\n`);
  for (const chart of charts) console.log(`chart: ${chart}`);
  if (!run.write) return;
  const kept = `${run.name}-rows.jsonl`;
  const bench = join(repository, "bench");
  copyFileSync(rows.path, join(bench, kept));
  for (const chart of charts) copyFileSync(chart, join(bench, basename(chart)));
  const path = join(bench, "RESULTS.md");
  const heading = `# Results: ${run.name}`;
  const section = `${heading}\n\n${text}\n\nRaw rows: [${kept}](${kept}).\n`;
  writeFileSync(path, withSection(readFileSync(path, "utf8"), heading, section));
  console.log(`written to ${path}`);
}

/** Pure. Sections begin with a line "# ..." */
export function withSection(document: string, heading: string, section: string): string {
  const parts = document.split(/^(?=# )/m);
  const index = parts.findIndex((part) => part.split("\n", 1)[0] === heading);
  if (index === -1) parts.push(section);
  else parts[index] = section;
  return `${parts.map((part) => part.trimEnd()).join("\n\n")}\n`;
}
