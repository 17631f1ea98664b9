/** The parts of the help that all verbs share. */
import type { Command } from "commander";

/** The examples at the end of the help; every verb has some. */
export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  $ ${line}\n`).join("")}`;
}

/** The options of every verb. */
export function addCommonOptions(command: Command): Command {
  return command
    .option("--json", "Print the JSON of the HTTP API")
    .option("-q, --quiet", "Print no progress and no notes");
}

/** For verbs that print tables or ids. */
export function addTableOption(command: Command): Command {
  return command.option("--no-trunc", "Print ids and tables in full on a terminal too");
}
