/**
 * Reads the commands of a page of documentation.
 *
 * In a fence `sh` every line is a command, or continues in the next line. In a fence `console` commands
 * follow `$ `, and their output follows them; `…` matches anything. A comment at the end of a command states
 * what else to expect: `# exit 3`, or `# until Ctrl-C` for a command that runs until it is interrupted.
 * `<!-- not run: REASON -->` before a fence, perhaps with a blank line between, excludes the fence.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repository } from "../places.ts";

export type Block = {
  page: string;
  line: number;
  language: string;
  lines: readonly string[];
  /** why the test does not run it */
  notRun?: string;
};

export type Step = {
  /** page and line */
  at: string;
  text: string;
  /** the output that the page shows; absent if it shows none */
  printed?: string;
  exit: number;
  /** runs until it is interrupted */
  endless: boolean;
};

export function blocksOf(page: string): Block[] {
  const lines = readFileSync(join(repository, page), "utf8").split("\n");
  const blocks: Block[] = [];
  for (let at = 0; at < lines.length; at++) {
    const language = /^```(\w*)$/.exec(lines[at] ?? "")?.[1];
    if (language === undefined) continue;
    const end = lines.indexOf("```", at + 1);
    assert.ok(end > at, `${page}:${at + 1}: the fence is not closed`);
    const before = lines[at - 1] === "" ? lines[at - 2] : lines[at - 1];
    const notRun = /^<!-- not run: (.+) -->$/.exec(before ?? "")?.[1];
    blocks.push({
      page,
      line: at + 1,
      language,
      lines: lines.slice(at + 1, end),
      ...(notRun !== undefined && { notRun }),
    });
    at = end;
  }
  return blocks;
}

/** The commands of a block, in order. */
export function stepsOf({ page, line, language, lines }: Block): Step[] {
  const steps: Step[] = [];
  let pending: string | undefined;
  let begun = 0;
  for (const [index, each] of lines.entries()) {
    const prompted = language === "console" && each.startsWith("$ ");
    const command = prompted ? each.slice(2) : each;
    if (pending === undefined) {
      const last = steps.at(-1);
      if (language === "console" && !prompted) {
        assert.ok(last, `${page}:${line + index + 1}: output before a command`);
        last.printed = last.printed === undefined ? each : `${last.printed}\n${each}`;
        continue;
      }
      if (/^\s*(#.*)?$/.test(command)) continue;
      begun = line + index + 1;
    }
    pending = pending === undefined ? command : `${pending}\n${command}`;
    if (isComplete(pending)) {
      steps.push(stepFrom(`${page}:${begun}`, pending));
      pending = undefined;
    }
  }
  assert.equal(pending, undefined, `${page}:${begun}: the command is not complete`);
  return steps;
}

export function stepFrom(at: string, text: string): Step {
  const remark = /\s#\s(.*)$/.exec(text)?.[1] ?? "";
  const exit = Number(/\bexit (\d+)\b/.exec(remark)?.[1] ?? 0);
  return { at, text, exit, endless: remark.includes("until Ctrl-C") };
}

function isComplete(text: string): boolean {
  if (text.endsWith("\\")) return false;
  const env = { ...process.env, LC_ALL: "C" };
  const { status, stderr } = spawnSync("bash", ["-n"], { input: `${text}\n`, env, encoding: "utf8" });
  // bash only warns of a here-document that is not closed.
  return status === 0 && !stderr.includes("here-document");
}
