/** Makes a table as narrow as the terminal: without columns, then with cut cells. */

/** What decides how a column gives way. */
export type ColumnShape = {
  readonly title: string;
  readonly align?: "right";
  /** The column has ids of sandboxes, which a terminal shows as unique prefixes. */
  readonly id?: true;
  /** A table that is too wide leaves these columns out, the lowest number first. */
  readonly drop?: number;
  /** Long text, which goes below the row, wrapped, if the table is too wide. One column at most. */
  readonly below?: true;
};

export type Fitted = {
  /** Places of the columns that are shown beside each other. */
  readonly shown: readonly number[];
  /** Place of the column that is shown below its row, if it does not fit beside the others. */
  readonly below: number | undefined;
  /** By place of the column. */
  readonly widths: readonly number[];
};

type State = { shown: number[]; below: number | undefined; widths: number[] };

const gap = 2;
/** A cut cell keeps at least this many characters. */
const leastWidth = 8;

/**
 * The steps, each only while the table is too wide: leave out columns without values, put the long text below
 * its row, leave out columns by their rank, cut the last column, cut the widest of the others.
 */
export function fitTable(
  columns: readonly ColumnShape[],
  cells: readonly (readonly string[])[],
  width: number,
): Fitted {
  const widths = columns.map((_, place) => Math.max(...cells.map((line) => lengthOf(line[place]))));
  const state: State = { shown: columns.map((_, place) => place), below: undefined, widths };
  const excess = () => totalOf(state) - width;
  const leaveOut = (place: number) => (state.shown = state.shown.filter((each) => each !== place));

  for (const place of state.shown.slice(1).toReversed())
    if (excess() > 0 && cells.length > 1 && isEmpty(cells, place)) leaveOut(place);
  const text = state.shown.find((place) => columns[place]?.below);
  if (excess() > 0 && text !== undefined) {
    state.below = text;
    leaveOut(text);
  }
  const dispensable = state.shown.filter((place) => columns[place]?.drop !== undefined);
  for (const place of dispensable.toSorted((a, b) => rankOf(columns[a]) - rankOf(columns[b])))
    if (excess() > 0) leaveOut(place);
  cutCells(columns, state, excess);
  return state;
}

function cutCells(columns: readonly ColumnShape[], state: State, excess: () => number): void {
  const canCut = state.shown.filter((place) => !columns[place]?.id && columns[place]?.align !== "right");
  const floorOf = (place: number) => Math.max(leastWidth, columns[place]?.title.length ?? 0);
  const last = canCut.at(-1);
  if (last !== undefined && last === state.shown.at(-1)) cut(last, excess());
  while (excess() > 0) {
    const widest = canCut
      .filter((place) => (state.widths[place] ?? 0) > floorOf(place))
      .toSorted((a, b) => (state.widths[b] ?? 0) - (state.widths[a] ?? 0))[0];
    if (widest === undefined) return;
    cut(widest, 1);
  }

  function cut(place: number, by: number): void {
    const width = state.widths[place] ?? 0;
    if (by > 0) state.widths[place] = Math.max(Math.min(width, floorOf(place)), width - by);
  }
}

function totalOf({ shown, widths }: State): number {
  return shown.reduce((sum, place) => sum + (widths[place] ?? 0), gap * (shown.length - 1));
}

/** The first line has the titles. */
function isEmpty(cells: readonly (readonly string[])[], place: number): boolean {
  return cells.slice(1).every((line) => line[place] === "-" || line[place] === "");
}

function rankOf(column: ColumnShape | undefined): number {
  return column?.drop ?? 0;
}

/** In characters, where JavaScript counts halves of surrogate pairs. */
export function lengthOf(text = ""): number {
  return /[\ud800-\udbff]/.test(text) ? Array.from(text).length : text.length;
}

/** The beginning of a text that is too long, with a mark. */
export function cutText(text: string, width: number): string {
  if (lengthOf(text) <= width) return text;
  return `${Array.from(text)
    .slice(0, Math.max(0, width - 1))
    .join("")}…`;
}

/** Lines of at most `width` characters, broken between words where possible. */
export function wrapText(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ").flatMap((each) => pieces(each, width))) {
    const joined = line === "" ? word : `${line} ${word}`;
    if (line !== "" && lengthOf(joined) > width) {
      lines.push(line);
      line = word;
    } else {
      line = joined;
    }
  }
  return line === "" ? lines : [...lines, line];
}

function pieces(word: string, width: number): string[] {
  const characters = Array.from(word);
  const count = Math.max(1, Math.ceil(characters.length / width));
  return Array.from({ length: count }, (_, at) => characters.slice(at * width, (at + 1) * width).join(""));
}
