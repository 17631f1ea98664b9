/** Rows → aligned text, and values → the short forms in tables. */

export type Column<Row> = {
  readonly title: string;
  readonly value: (row: Row) => string;
  readonly align?: "right";
};

/** Lines with two blanks between columns and none at the end. */
export function renderTable<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
  const cells = [
    columns.map(({ title }) => title),
    ...rows.map((row) => columns.map(({ value }) => clean(value(row)))),
  ];
  const widths = columns.map((_, index) => Math.max(...cells.map((line) => line[index]?.length ?? 0)));
  return cells.map((line) => renderLine(line, widths, columns)).join("");
}

function renderLine<Row>(
  line: readonly string[],
  widths: readonly number[],
  columns: readonly Column<Row>[],
): string {
  const padded = line.map((cell, index) => {
    const width = widths[index] ?? 0;
    return columns[index]?.align === "right" ? cell.padStart(width) : cell.padEnd(width);
  });
  return `${padded.join("  ").trimEnd()}\n`;
}

/**
 * Characters that change how others are shown: format characters such as those for the direction of text, line
 * separators, and halves of surrogate pairs. A visible mark replaces them, so that a name with one does not
 * look like the name without it.
 */
const invisible = /[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const mark = "\ufffd";

/** Replaces control characters, which could break the line or control the terminal. */
export function clean(text: string): string {
  return text.replaceAll(/\p{Cc}/gu, " ").replaceAll(invisible, mark);
}

/** The same for text of several lines, such as a message that quotes a guest. */
export function cleanLines(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]/gu, " ").replaceAll(invisible, mark);
}

/** The same JSON with more escapes: JSON.stringify() does not escape all that could control the terminal. */
export function cleanJson(json: string): string {
  return json.replaceAll(/[\u007f-\u009f\p{Cf}\p{Zl}\p{Zp}]/gu, (found) => {
    const units = Array.from({ length: found.length }, (_, index) => found.charCodeAt(index));
    return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
  });
}

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < byteUnits.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${byteUnits[unit]}`;
}

/** "42s", "5m", "3h", "2d". */
export function formatSeconds(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  if (whole < 172_800) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86_400)}d`;
}

export function formatAge(unix: number, nowMs = Date.now()): string {
  return `${formatSeconds(nowMs / 1000 - unix)} ago`;
}

export function formatPairs(pairs: Readonly<Record<string, string>>): string {
  return Object.entries(pairs)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
