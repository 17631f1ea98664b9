/** Pieces that every verb's help shares. */
import type { Command } from "commander";

/** Text after the options; every verb has one. */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ ${line}\n`).join("")}`;
}

/** Options that every verb takes. */
export function addCommonOptions(command: Command): Command {
  return command
    .option("--json", "print JSON as the HTTP interface gives it")
    .option("-q, --quiet", "print no progress and no remarks");
}
