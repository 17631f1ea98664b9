/** Prints candidates for the word under the cursor, one per line. Starts no daemon and never fails. */
import { Command, type Option } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addCommonOptions, examples } from "../options/help.ts";
import { findVerb, verbs, type Completes, type Verb } from "../verbs.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[word...]", "Words after `forkd`, the last one incomplete")
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

/** What completes the values of options; options with choices need no entry. */
export const optionValues: Readonly<Record<string, Completes>> = {
  "--tag": "tags",
  "--from": "tags",
  "--to": "tags",
  "--snapshot": "tags",
  "--from-sandbox": "sandboxes",
  "--sandbox": "sandboxes",
  "--parent": "tags",
  "--type": "event types",
  "--set": "settings",
};

async function candidates(cli: Cli, { verb, before, current }: Place): Promise<string[]> {
  if (verb === undefined) return verbNames(current);
  if (before.at(-1) === "--service") return serviceNames(cli, before);
  const value = optionValues[before.at(-1) ?? ""];
  if (value !== undefined) return namesOf(cli, value);
  const subcommand = before.find((word) => Object.hasOwn(verb.subcommands ?? {}, word));
  const options = await optionsOf(verb, subcommand);
  const last = before.at(-1);
  const choices = options.find(({ long, short }) => last === long || last === short)?.argChoices;
  if (choices !== undefined) return choices;
  if (current.startsWith("-"))
    return [...options.flatMap(({ long, hidden }) => (long && !hidden ? [long] : [])), "--help"];
  if (verb.subcommands !== undefined && subcommand === undefined) return Object.keys(verb.subcommands);
  const completes = subcommand === undefined ? verb.completes : verb.subcommands?.[subcommand];
  return completes === undefined ? [] : namesOf(cli, completes);
}

/** The list of all verbs has no aliases, but the completion of a word has. */
function verbNames(current: string): string[] {
  const shown = verbs.filter(({ hidden }) => !hidden);
  return shown.flatMap(({ name, alias }) => (alias === undefined || current === "" ? [name] : [name, alias]));
}

async function optionsOf(verb: Verb, subcommand: string | undefined): Promise<readonly Option[]> {
  const command = addCommonOptions(new Command(verb.name));
  (await verb.load()).define(command, () => async () => {});
  return (command.commands.find((candidate) => candidate.name() === subcommand) ?? command).options;
}

/** Of the sandbox that the line names before the option. */
async function serviceNames(cli: Cli, before: readonly string[]): Promise<string[]> {
  const given = before.slice(1, -1).find((word) => !word.startsWith("-"));
  if (given === undefined) return [];
  const { findDaemon } = await import("../daemon/client.ts");
  const forkd = await findDaemon(cli.signal).catch(() => undefined);
  if (forkd === undefined) return [];
  const sandboxes = await forkd.sandboxes.list({}, { signal: cli.signal });
  const info = sandboxes.find(
    ({ id, workspace }) => workspace === given || id.replace("sb-", "").startsWith(given.replace("sb-", "")),
  );
  // A paused sandbox would be resumed by the question.
  if (info?.state !== "running") return [];
  const sandbox = await forkd.sandboxes.get(info.id, { signal: cli.signal });
  return (await sandbox.services({ signal: cli.signal })).map(({ name }) => name);
}

async function namesOf(cli: Cli, kind: Completes): Promise<string[]> {
  if (kind === "shells") return ["bash", "zsh", "fish"];
  if (kind === "settings") return (await import("../daemon/local.ts")).settingNames();
  if (kind === "recipes")
    return (await import("../guest/recipes.ts")).bundledRecipes(cli.environment.recipesDir);
  if (kind === "event types") return [...(await import("@forkd/contract/wire")).eventTypes];
  const { findDaemon } = await import("../daemon/client.ts");
  const forkd = await findDaemon(cli.signal).catch(() => undefined); // without a daemon there are no names
  if (forkd === undefined) return [];
  const options = { signal: cli.signal };
  if (kind === "tags") return (await forkd.snapshots.list(options)).map(({ tag }) => tag);
  if (kind === "keys") return (await forkd.keys.list(options)).map(({ name }) => name);
  if (kind === "workspaces") return (await forkd.workspaces.list(options)).map(({ name }) => name);
  const sandboxes = await forkd.sandboxes.list({}, options);
  return sandboxes.flatMap(({ id, workspace }) => (workspace === undefined ? [id] : [id, workspace]));
}
