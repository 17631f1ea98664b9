/** Prints candidates for the word under the cursor, one per line. Starts no daemon and never fails. */
import type { Forkd, SandboxInfo } from "@forkd/sdk";
import { Command, type Option } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { matchSandbox } from "../options/arguments.ts";
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
  "--context": "contexts",
  "--drop": "contexts",
  "--service": "services",
  "--secret": "secrets",
  "--allow": "rules",
  "--deny": "rules",
  "--only": "hazards",
};

async function candidates(cli: Cli, { verb, before, current }: Place): Promise<string[]> {
  if (verb === undefined)
    return current.startsWith("-") ? ["--version", "--json", "--quiet", "--help"] : verbNames(current);
  const subcommand = before.find((word) => Object.hasOwn(verb.subcommands ?? {}, word));
  const options = await optionsOf(verb, subcommand);
  const last = before.at(-1);
  const choices = options.find(({ long, short }) => last === long || last === short)?.argChoices;
  if (choices !== undefined) return choices;
  const value = optionValues[last ?? ""];
  if (value !== undefined) return namesOf(cli, value, operands(before, options)[0]);
  if (current.startsWith("-"))
    return [...options.flatMap(({ long, hidden }) => (long && !hidden ? [long] : [])), "--help"];
  const given = operands(before, options);
  const words = subcommand === undefined && given.length === 0 ? Object.keys(verb.subcommands ?? {}) : [];
  if (words.length > 0 && verb.completes === undefined) return words;
  const [first] = given;
  const next = verb.completesNext ?? verb.completes;
  const own =
    [verb.completes, next][given.length] ?? (given.length < 2 ? undefined : (verb.completesRest ?? next));
  const completes = subcommand === undefined ? own : verb.subcommands?.[subcommand];
  return [...words, ...(completes === undefined ? [] : await namesOf(cli, completes, first))];
}

/** The operands of the verb: the words after it that are neither options nor values of one. */
function operands(before: readonly string[], options: readonly Option[]): string[] {
  const words = before.slice(before.findIndex((word) => !word.startsWith("-")) + 1);
  const takesValue = (word: string) =>
    options.some(({ long, short, required }) => required && (word === long || word === short));
  return words.filter((word, index) => !word.startsWith("-") && !takesValue(words[index - 1] ?? ""));
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

/** `target` is the sandbox whose commands, contexts or services are meant. */
async function namesOf(cli: Cli, kind: Completes, target: string | undefined): Promise<string[]> {
  if (kind === "shells") return ["bash", "zsh", "fish"];
  if (kind === "settings") return (await import("../daemon/local.ts")).settingNames();
  if (kind === "recipes")
    return (await import("../guest/recipes.ts")).bundledRecipes(cli.environment.recipesDir);
  if (kind === "shelf" || kind === "demos") {
    const entries = await (await import("../shelf/shelf.ts")).readShelf(cli.environment.recipesDir);
    return entries.flatMap(({ name, demo }) => (kind === "demos" && demo === undefined ? [] : [name]));
  }
  if (kind === "network actions") return [...(await import("./net.ts")).networkActions];
  if (kind === "hazards") return [...(await import("@forkd/contract/wire")).hazardIds];
  if (kind === "signing keys") {
    const { keyDirectory, listKeys } = await import("../signing/key-store.ts");
    return (await listKeys(keyDirectory(cli.environment)).catch(() => [])).map(({ name }) => name);
  }
  if (kind === "event types") return [...(await import("@forkd/contract/wire")).eventTypes];
  const { findDaemon } = await import("../daemon/client.ts");
  const forkd = await findDaemon(cli.signal).catch(() => undefined); // without a daemon there are no names
  if (forkd === undefined) return [];
  const options = { signal: cli.signal };
  if (kind === "tags") return (await forkd.snapshots.list({}, options).all()).map(({ tag }) => tag);
  if (kind === "keys") return (await forkd.keys.list(options)).map(({ name }) => name);
  if (kind === "repositories") return (await forkd.trust.list(options)).map(({ repository }) => repository);
  if (kind === "secrets") return (await forkd.secrets.list(options)).map(({ name }) => name);
  if (kind === "presets" || kind === "rules") {
    const presets = await forkd.network.presets.list(options);
    return presets.map(({ name }) => (kind === "rules" ? `preset:${name}` : name));
  }
  if (kind === "workspaces") return (await forkd.workspaces.list({}, options).all()).map(({ name }) => name);
  const sandboxes = (await forkd.sandboxes.list({}, options).all()).map(({ info }) => info);
  if (kind === "commands" || kind === "contexts" || kind === "services" || kind === "ports")
    return inGuest(forkd, { kind, sandboxes, target }).catch(() => []);
  const names = sandboxes.flatMap(({ id, workspace }) => (workspace === undefined ? [id] : [id, workspace]));
  if (kind === "sandboxes") return names;
  return [...(await forkd.snapshots.list({}, options).all()).map(({ tag }) => tag), ...names];
}

type InGuest = {
  kind: "commands" | "contexts" | "services" | "ports";
  sandboxes: readonly SandboxInfo[];
  target: string | undefined;
};

/** Asks only a sandbox that runs: completing a word must not resume one. */
async function inGuest(forkd: Forkd, { kind, sandboxes, target }: InGuest): Promise<string[]> {
  const match = target === undefined ? undefined : matchSandbox(target, sandboxes);
  const info = match && "id" in match && sandboxes.find(({ id }) => id === match.id);
  if (!info) return [];
  const sandbox = await forkd.sandboxes.get(info.id);
  if (kind === "ports") return (await sandbox.ports.list()).map(({ port }) => String(port));
  if (info.state !== "running") return [];
  if (kind === "commands") return (await sandbox.commands.list()).map(({ execId }) => String(execId));
  return (await (kind === "contexts" ? sandbox.contexts.list() : sandbox.services())).map(({ name }) => name);
}
