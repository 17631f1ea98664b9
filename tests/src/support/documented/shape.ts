/**
 * Compares printed output with the output that the documentation shows. JSON must have the same keys and
 * strings. Numbers may differ, and in other lines the amount of white space too. `…` matches anything: part
 * of a string, the value of a key, further keys or elements, and on its own line any number of lines.
 */
import assert from "node:assert/strict";

const anything = "…";

export function assertLooksLike(printed: string, shown: string, at: string): void {
  const problem = difference(printed, shown);
  assert.equal(problem, undefined, `${at}: ${problem}\n--- shown\n${shown}\n--- printed\n${printed}`);
}

export function difference(printed: string, shown: string): string | undefined {
  const whole = parseShown(shown);
  if (whole !== undefined && shown.includes("\n")) return jsonDifference(parse(printed), whole, "");
  return linesDifference(printed.replace(/\n+$/, "").split("\n"), shown.replace(/\n+$/, "").split("\n"));
}

function linesDifference(printed: readonly string[], shown: readonly string[]): string | undefined {
  const [first, ...rest] = shown;
  if (first === undefined)
    return printed.length === 0 ? undefined : `more lines than shown, from: ${printed[0]}`;
  if (first === anything) {
    for (let skip = 0; skip <= printed.length; skip++)
      if (linesDifference(printed.slice(skip), rest) === undefined) return undefined;
    return `no line matches what follows …: ${rest[0]}`;
  }
  if (printed[0] === undefined) return `missing line: ${first}`;
  return lineDifference(printed[0], first) ?? linesDifference(printed.slice(1), rest);
}

function lineDifference(printed: string, shown: string): string | undefined {
  const start = /^(\w+: )?(?=[[{])/.exec(shown)?.[0];
  const wanted = start === undefined ? undefined : parseShown(shown.slice(start.length));
  if (start !== undefined && wanted !== undefined) {
    if (!printed.startsWith(start)) return `${start} is not the beginning of: ${printed}`;
    return jsonDifference(parse(printed.slice(start.length)), wanted, "");
  }
  return like(printed, shown, /\d+(\.\d+)?/) ? undefined : `shown: ${shown}; printed: ${printed}`;
}

/** Parses JSON of the documentation, which may contain … in places where JSON does not allow it. */
function parseShown(text: string): unknown {
  const filled = text
    .replaceAll(/(?<=[[{,])\s*…(?=\s*[\]}])/g, (_, at: number) =>
      closes(text, at) === "]" ? '"…"' : '"…":0',
    )
    .replaceAll(/(?<=:)\s*…(?=\s*[,}\]])/g, '"…"');
  return parse(filled);
}

/** The bracket that closes the list or object around the … at this place. */
function closes(text: string, at: number): string | undefined {
  return /[\]}]/.exec(text.slice(at))?.[0];
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function jsonDifference(printed: unknown, shown: unknown, path: string): string | undefined {
  if (shown === anything) return printed === undefined ? `${path} is missing` : undefined;
  const where = path === "" ? "the answer" : path;
  if (Array.isArray(shown)) {
    if (!Array.isArray(printed)) return `${where} is not a list`;
    const open = shown.at(-1) === anything;
    const wanted = open ? shown.slice(0, -1) : shown;
    if (printed.length < wanted.length || (!open && printed.length > wanted.length))
      return `${where} has ${printed.length} elements`;
    return first(wanted.map((each, index) => jsonDifference(printed[index], each, `${path}[${index}]`)));
  }
  if (typeof shown === "object" && shown !== null) {
    if (typeof printed !== "object" || printed === null || Array.isArray(printed))
      return `${where} is not an object`;
    const wanted = Object.keys(shown).filter((key) => key !== anything);
    const extra = Object.keys(printed).filter((key) => !wanted.includes(key));
    if (extra.length > 0 && !(anything in shown)) return `${where} also has ${extra.join(", ")}`;
    const value = (of: object, key: string): unknown => (of as Record<string, unknown>)[key];
    return first(
      wanted.map((key) => jsonDifference(value(printed, key), value(shown, key), `${path}.${key}`)),
    );
  }
  if (typeof shown === "number")
    return typeof printed === "number" ? undefined : `${where} is not a number: ${JSON.stringify(printed)}`;
  const same =
    typeof shown === "string" && typeof printed === "string" ? like(printed, shown) : printed === shown;
  return same ? undefined : `${where} is ${JSON.stringify(printed)}`;
}

function first(problems: (string | undefined)[]): string | undefined {
  return problems.find((problem) => problem !== undefined);
}

/** Matches text: … is anything, white space is any white space, and a match of `free` is any other match. */
function like(printed: string, shown: string, free?: RegExp): boolean {
  const parts = shown
    .trim()
    .split(free === undefined ? /(…|\s+)/ : new RegExp(`(…|\\s+|${free.source.replace("(", "(?:")})`));
  const pattern = parts
    .map((part) => {
      if (part === anything) return "[^]*";
      if (/^\s+$/.test(part)) return "\\s+";
      if (free !== undefined && new RegExp(`^(${free.source})$`).test(part)) return `(?:${free.source})`;
      return part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
    })
    .join("");
  return new RegExp(`^${pattern}$`).test(printed.trim());
}
