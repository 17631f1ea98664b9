/** What a benchmark says in the end: tables in markdown, targets met or missed, and its part of RESULTS.md. */
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { repository } from "./daemon.ts";
import type { Rows } from "./rows.ts";

/** A figure that must not be larger than its limit. */
export type Target = { figure: string; measured: number; limit: number; unit?: string; detail?: string };

export function markdownTable(head: readonly string[], lines: readonly (readonly string[])[]): string {
  const render = (line: readonly string[]) => `| ${line.join(" | ")} |`;
  const rule = head.map((_, column) => (column === 0 ? "---" : "---:"));
  return [render(head), render(rule), ...lines.map(render)].join("\n");
}

export function number(value: number, digits = 1): string {
  return Number.isFinite(value) ? value.toFixed(digits) : "–";
}

export function targetTable(targets: readonly Target[]): string {
  const lines = targets.map(({ figure, measured, limit, unit = "", detail = "" }) => {
    const digits = unit === "" ? 2 : 1;
    const suffix = unit === "" ? "" : ` ${unit}`;
    const outcome = Number.isFinite(measured) ? (measured <= limit ? "met" : "**MISSED**") : "not measured";
    return [
      figure,
      number(measured, digits) + suffix,
      `≤ ${number(limit, digits)}${suffix}`,
      outcome,
      detail,
    ];
  });
  return markdownTable(["figure", "measured", "wanted", "", ""], lines);
}

/** Those that were missed come first. */
export function lossesFirst(targets: readonly Target[]): Target[] {
  const isMet = ({ measured, limit }: Target) => Number(measured <= limit);
  return [...targets].sort((one, other) => isMet(one) - isMet(other));
}

/** Prints the report; with `write` puts it into RESULTS.md in place of the last one of the same name, with its raw rows. */
export function publish(name: string, text: string, rows: Rows, write: boolean): void {
  console.log(`\n${text}\n\nraw rows: ${rows.path}`);
  if (!write) return;
  const kept = `${name}-rows.jsonl`;
  copyFileSync(rows.path, join(repository, "bench", kept));
  const path = join(repository, "bench/RESULTS.md");
  const section = `# Results: ${name}\n\n${text}\n\nRaw rows: [${kept}](${kept}).\n`;
  writeFileSync(path, withSection(readFileSync(path, "utf8"), `# Results: ${name}`, section));
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
