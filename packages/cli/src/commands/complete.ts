/** Candidates for the word under the cursor, one a line. Starts no daemon and never fails. */
import { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addCommonOptions, examples } from "../help.ts";
import { findVerb, verbs, type Completes, type Verb } from "../verbs.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[word...]", "words after `forkd`, the last one unfinished")
    .addHelpText("after", examples("forkd __complete -- ex", "forkd __complete -- exec ''"))
    .action(toAction(complete));
}

async function complete(cli: Cli, _options: unknown, words: string[]): Promise<void> {
  const current = words.at(-1) ?? "";
  const before = words.slice(0, -1);
  const verb = findVerb(before.find((word) => !word.startsWith("-")));
  const found = before.includes("--") ? [] : await candidates(cli, { verb, before, current });
  for (const candidate of found) if (candidate.startsWith(current)) cli.out.line(candidate);
}

type Place = { verb: Verb | undefined; before: readonly string[]; current: string };

async function candidates(cli: Cli, { verb, before, current }: Place): Promise<string[]> {
  if (verb === undefined) return verbs.filter(({ hidden }) => !hidden).map(({ name }) => name);
  if (before.at(-1) === "--tag") return namesOf(cli, "tags");
  if (current.startsWith("-")) return optionsOf(verb);
  return verb.completes === undefined ? [] : namesOf(cli, verb.completes);
}

async function optionsOf(verb: Verb): Promise<string[]> {
  const command = addCommonOptions(new Command(verb.name));
  (await verb.load()).define(command, () => async () => {});
  return [...command.options.map(({ long }) => long ?? ""), "--help"].filter((name) => name !== "");
}

async function namesOf(cli: Cli, kind: Completes): Promise<string[]> {
  if (kind === "shells") return ["bash", "zsh", "fish"];
  if (kind === "recipes") return (await import("../recipes.ts")).bundledRecipes(cli.environment.recipesDir);
  const { findDaemon } = await import("../client.ts");
  const forkd = await findDaemon(cli.signal).catch(() => undefined); // no daemon, no names
  if (forkd === undefined) return [];
  const options = { signal: cli.signal };
  if (kind === "tags") return (await forkd.snapshots.list(options)).map(({ tag }) => tag);
  return (await forkd.sandboxes.list({}, options)).map(({ id }) => id);
}
