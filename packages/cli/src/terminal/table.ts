/** Rows → aligned text, and values → the short forms in tables. */
import { cutText, fitTable, lengthOf, wrapText, type ColumnShape, type Fitted } from "./fit-table.ts";
import { shortIds } from "./short-id.ts";

export type Column<Row> = ColumnShape & { readonly value: (row: Row) => string };

/** How a table is shown on a terminal. Without it, ids and cells are complete. */
type TableView = {
  /** Columns of the terminal; default: as many as the table needs. */
  readonly width?: number | undefined;
  readonly shortIds?: boolean;
};

const indent = "    ";

/** Lines with two blanks between columns and none at the end. */
export function renderTable<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  view: TableView = {},
): string {
  const { width = Number.POSITIVE_INFINITY } = view;
  const values = rows.map((row) => columns.map(({ value }) => clean(value(row))));
  const cells = [
    columns.map(({ title }) => title),
    ...(view.shortIds ? withShortIds(columns, values) : values),
  ];
  const fitted = fitTable(columns, cells, width);
  return cells
    .map((line, at) => renderLine(columns, line, fitted) + (at === 0 ? "" : textBelow(line, fitted, width)))
    .join("");
}

function renderLine<Row>(
  columns: readonly Column<Row>[],
  line: readonly string[],
  { shown, widths }: Fitted,
): string {
  const padded = shown.map((place) => {
    const width = widths[place] ?? 0;
    const cell = cutText(line[place] ?? "", width);
    const blanks = " ".repeat(width - lengthOf(cell));
    return columns[place]?.align === "right" ? blanks + cell : cell + blanks;
  });
  return `${padded.join("  ").trimEnd()}\n`;
}

function textBelow(line: readonly string[], { below }: Fitted, width: number): string {
  const text = below === undefined ? "" : (line[below] ?? "");
  if (text === "" || text === "-") return "";
  const lines = wrapText(text, Math.max(20, width - indent.length));
  return lines.map((each) => `${indent}${each}\n`).join("");
}

function withShortIds<Row>(columns: readonly Column<Row>[], values: readonly string[][]): string[][] {
  const places = columns.flatMap(({ id }, place) => (id ? [place] : []));
  const short = shortIds(values.flatMap((line) => places.map((place) => line[place] ?? "")));
  return values.map((line) =>
    line.map((cell, place) => (places.includes(place) ? (short.get(cell) ?? cell) : cell)),
  );
}

/**
 * Characters that change how others are shown: format characters such as those for the direction of text, line
 * separators, and halves of surrogate pairs. A visible mark replaces them, so that a name with one does not
 * look like the name without it.
 */
const invisible = /[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
const mark = "\ufffd";
/** Most texts: nothing in them is replaced. V8 takes milliseconds to compile the classes of Unicode. */
const plain = /^[\x20-\x7e]*$/;
const plainLines = /^[\x20-\x7e\n\t]*$/;

/** Replaces control characters, which could break the line or control the terminal. */
export function clean(text: string): string {
  return plain.test(text) ? text : text.replaceAll(/\p{Cc}/gu, " ").replaceAll(invisible, mark);
}

/** The same for text of several lines, such as a message that quotes a guest. */
export function cleanLines(text: string): string {
  if (plainLines.test(text)) return text;
  return text.replaceAll(/[^\P{Cc}\n\t]/gu, " ").replaceAll(invisible, mark);
}

/** The same JSON with more escapes: JSON.stringify() does not escape all that could control the terminal. */
export function cleanJson(json: string): string {
  if (plainLines.test(json)) return json;
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
