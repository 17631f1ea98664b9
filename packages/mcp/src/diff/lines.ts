/** Differences of two texts, line by line, as a unified diff. Pure and bounded. */

/** Lines of either text, and differences between them, beyond which no diff is made. */
const mostLines = 50_000;
const mostEdits = 2000;
const contextLines = 3;

type Edit = { readonly kind: " " | "-" | "+"; readonly line: string };

/** The hunks of a unified diff without their header; undefined if the texts differ too much. */
export function unifiedHunks(a: string, b: string): string | undefined {
  const edits = editsOf(linesOf(a), linesOf(b));
  return edits && hunksOf(edits).join("\n");
}

/** A last line without a line end is marked, so that it differs from the same line with one. */
function linesOf(text: string): string[] {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  else lines.push(`${lines.pop() ?? ""}\n\\ No newline at end of file`);
  return lines;
}

function editsOf(a: readonly string[], b: readonly string[]): Edit[] | undefined {
  if (a.length > mostLines || b.length > mostLines) return undefined;
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end])
    end++;
  const same = (lines: readonly string[]): Edit[] => lines.map((line) => ({ kind: " ", line }));
  const middle = shortestEdits(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return middle && [...same(a.slice(0, start)), ...middle, ...same(a.slice(a.length - end))];
}

/** The greedy algorithm of Myers: keeps the furthest point of each diagonal for every number of edits. */
function shortestEdits(a: readonly string[], b: readonly string[]): Edit[] | undefined {
  const most = Math.min(a.length + b.length, mostEdits);
  const size = 2 * most + 3;
  const offset = most + 1;
  let furthest = new Int32Array(size);
  const trace: Int32Array[] = [];
  for (let edits = 0; edits <= most; edits++) {
    trace.push(furthest.slice(offset - edits - 1, offset + edits + 2));
    const next = furthest.slice();
    for (let k = -edits; k <= edits; k += 2) {
      const down =
        k === -edits || (k !== edits && at(furthest, offset + k - 1) < at(furthest, offset + k + 1));
      let x = down ? at(furthest, offset + k + 1) : at(furthest, offset + k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      next[offset + k] = x;
      if (x >= a.length && x - k >= b.length) return backtrack(a, b, trace);
    }
    furthest = next;
  }
  return undefined;
}

function at(values: Int32Array, index: number): number {
  return values[index] ?? 0;
}

/** Follows the points back from the end; `trace[d]` has the diagonals -d-1 … d+1 before the d-th edit. */
function backtrack(a: readonly string[], b: readonly string[], trace: readonly Int32Array[]): Edit[] {
  const edits: Edit[] = [];
  let x = a.length;
  let y = b.length;
  for (let count = trace.length - 1; count >= 0; count--) {
    const before = trace[count] ?? new Int32Array();
    const of = (k: number) => at(before, k + count + 1);
    const k = x - y;
    const down = k === -count || (k !== count && of(k - 1) < of(k + 1));
    const fromX = count === 0 ? 0 : of(down ? k + 1 : k - 1);
    const fromY = count === 0 ? 0 : fromX - (down ? k + 1 : k - 1);
    while (x > fromX && y > fromY) edits.push({ kind: " ", line: (y--, a[--x] ?? "") });
    if (count === 0) break;
    if (down) edits.push({ kind: "+", line: b[--y] ?? "" });
    else edits.push({ kind: "-", line: a[--x] ?? "" });
  }
  return edits.reverse();
}

function hunksOf(edits: readonly Edit[]): string[] {
  const lines: string[] = [];
  const isNear = edits.map(() => false);
  for (const [index, { kind }] of edits.entries()) {
    if (kind === " ") continue;
    for (let near = index - contextLines; near <= index + contextLines; near++) isNear[near] = true;
  }
  let oldLine = 1;
  let newLine = 1;
  for (let index = 0; index < edits.length;) {
    if (isNear[index] !== true) {
      oldLine++;
      newLine++;
      index++;
      continue;
    }
    let end = index;
    while (end < edits.length && isNear[end] === true) end++;
    const hunk = edits.slice(index, end);
    const olds = hunk.filter(({ kind }) => kind !== "+").length;
    const news = hunk.filter(({ kind }) => kind !== "-").length;
    lines.push(`@@ -${range(oldLine, olds)} +${range(newLine, news)} @@`);
    for (const { kind, line } of hunk) lines.push(kind + line);
    oldLine += olds;
    newLine += news;
    index = end;
  }
  return lines;
}

/** An empty range begins before its line. */
function range(line: number, count: number): string {
  return `${count === 0 ? line - 1 : line},${count}`;
}
