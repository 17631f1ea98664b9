/**
 * A strict subset of a Dockerfile → steps (pure): RUN, COPY, ENV, WORKDIR and USER, with comments and continued
 * lines. Everything else is refused with its line, because a build that ignores an instruction makes another image.
 */
import { z } from "zod";
import { Invalid } from "./invalid.ts";
import type { WrittenStep } from "./step-schema.ts";

/** A step, and the line on which its instruction begins. */
type DockerfileStep = { line: number; step: WrittenStep };

const instructions = ["RUN", "COPY", "ENV", "WORKDIR", "USER"];
const elsewhere: Readonly<Record<string, string>> = {
  FROM: 'recipe.json names the base, with "base" or "from"',
  CMD: 'recipe.json names what runs, with "services"',
  ENTRYPOINT: 'recipe.json names what runs, with "services"',
  EXPOSE: "ports of a sandbox need no declaration",
  ADD: "use COPY",
};

export function parseDockerfile(text: string): DockerfileStep[] {
  return logicalLines(text).flatMap(({ line, text: content }) => {
    const [, name = "", rest = ""] = /^(\S+)\s*(.*)$/s.exec(content) ?? [];
    const instruction = name.toUpperCase();
    const fail = (why: string): Invalid => new Invalid(`dockerfile: line ${line}: ${instruction}: ${why}`);
    if (!instructions.includes(instruction)) {
      const why = elsewhere[instruction] ?? `the instructions are ${instructions.join(", ")}`;
      throw fail(`cannot be used here: ${why}`);
    }
    if (rest === "") throw fail("needs an argument");
    return stepsOf(instruction, rest, fail).map((step) => ({ line, step }));
  });
}

type Fail = (why: string) => Invalid;

function stepsOf(instruction: string, rest: string, fail: Fail): WrittenStep[] {
  switch (instruction) {
    case "RUN":
      return [{ run: command(rest, fail) }];
    case "COPY":
      return copies(rest, fail);
    case "ENV":
      return [{ env: environment(rest, fail) }];
    case "WORKDIR":
      return [{ workdir: plain(rest, fail) }];
    default:
      return [{ user: plain(rest, fail) }];
  }
}

function command(rest: string, fail: Fail): string | string[] {
  if (rest.startsWith("--")) throw fail("options are not supported");
  if (/<<-?["']?[A-Za-z_]/.test(rest)) throw fail("here-documents are not supported");
  return rest.startsWith("[") ? jsonList(rest, fail) : rest;
}

function copies(rest: string, fail: Fail): WrittenStep[] {
  if (rest.startsWith("--")) throw fail("options are not supported");
  const words = (rest.startsWith("[") ? jsonList(rest, fail) : split(rest, fail)).map((word) =>
    plain(word, fail),
  );
  const to = words.at(-1) ?? "";
  const sources = words.slice(0, -1);
  if (sources.length === 0) throw fail("needs a source and a target");
  if (sources.length > 1 && !to.endsWith("/")) throw fail('the target of several sources must end with "/"');
  const pattern = sources.find((source) => /[*?[\]]/.test(source));
  if (pattern !== undefined) throw fail(`patterns like "${pattern}" are not supported`);
  return sources.map((source) => ({ copy: { from: withoutDot(source), to } }));
}

/** Docker's sources begin at the directory of the build, with or without "./" or "/". */
function withoutDot(source: string): string {
  return source.replace(/^(\.?\/)+/, "").replace(/\/+$/, "") || ".";
}

function environment(rest: string, fail: Fail): Record<string, string> {
  const words = split(rest, fail);
  const [first = "", second] = words;
  if (!first.includes("=")) {
    if (second === undefined) throw fail("needs NAME=VALUE");
    return { [first]: plain(rest.slice(rest.indexOf(first) + first.length).trim(), fail) };
  }
  return Object.fromEntries(
    words.map((word) => {
      const at = word.indexOf("=");
      if (at < 1) throw fail(`"${word}" is not NAME=VALUE`);
      return [word.slice(0, at), plain(word.slice(at + 1), fail)];
    }),
  );
}

/** Docker would replace variables here. */
function plain(text: string, fail: Fail): string {
  if (text.includes("$")) throw fail(`variables are not replaced: "${text}"`);
  return text;
}

function jsonList(text: string, fail: Fail): string[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw fail("the list is not JSON");
  }
  const list = z.array(z.string()).min(1).safeParse(value);
  if (!list.success) throw fail("must be a list of texts");
  return list.data;
}

/** Words with the quotes and backslashes of Dockerfiles removed. */
function split(text: string, fail: Fail): string[] {
  const words: string[] = [];
  let word: string | undefined;
  let quote = "";
  for (let at = 0; at < text.length; at++) {
    const letter = text[at] ?? "";
    if (letter === "\\" && quote !== "'" && at + 1 < text.length) word = (word ?? "") + (text[++at] ?? "");
    else if (letter === quote) quote = "";
    else if (quote === "" && (letter === '"' || letter === "'")) {
      quote = letter;
      word ??= "";
    } else if (quote === "" && /\s/.test(letter)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else word = (word ?? "") + letter;
  }
  if (quote !== "") throw fail("a quotation mark is not closed");
  return word === undefined ? words : [...words, word];
}

/** Joins continued lines; comments and empty lines are left out, also between continued lines. */
function logicalLines(text: string): { line: number; text: string }[] {
  const lines: { line: number; text: string }[] = [];
  let open: { line: number; text: string } | undefined;
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const content = raw.trim();
    if (content === "" || content.startsWith("#")) continue;
    const isContinued = content.endsWith("\\");
    const piece = isContinued ? content.slice(0, -1) : content;
    open = open ? { ...open, text: open.text + piece } : { line: index + 1, text: piece };
    if (isContinued) continue;
    lines.push({ ...open, text: open.text.trim() });
    open = undefined;
  }
  return open ? [...lines, { ...open, text: open.text.trim() }] : lines;
}
