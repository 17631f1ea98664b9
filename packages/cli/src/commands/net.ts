import type { NetworkInfo, NetworkMode, PresetInfo } from "@forkd/contract";
import { AppError, plural, similarNames } from "@forkd/contract/wire";
import { wireOf, type Sandbox } from "@forkd/sdk";
import { Argument, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage, wholeNumber } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { networkModes, readDestinations, readRules, type RuleWords } from "../options/network.ts";
import { forEach } from "../terminal/for-each.ts";
import { untilInterrupted } from "../terminal/interrupts.ts";
import { clean, type Column } from "../terminal/table.ts";
import { printFacts } from "../views/facts.ts";
import { describeNetwork, ruleColumns } from "../views/network-facts.ts";
import { allowCommand, describeEntry } from "../views/network-log.ts";

export const networkActions = ["allow", "deny", "rm", "mode", "log"] as const;
type Action = (typeof networkActions)[number];
type Options = { follow?: true; tail?: number };

const presetColumns: readonly Column<PresetInfo>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "ORIGIN", value: ({ origin }) => origin },
  { title: "RULES", value: ({ rules }) => rules.join("; ") },
];

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .enablePositionalOptions()
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .addArgument(
      new Argument("[action]", "Action; without one, show the network").choices([...networkActions]),
    )
    .argument("[rule...]", "Rules, or the mode")
    .option("-f, --follow", "Follow new entries of the log")
    .option("-n, --tail <entries>", "Start with the last entries of the log", wholeNumber(1, 1000))
    .addHelpText(
      "after",
      "\nActions:\n" +
        "  allow RULE…    Allow destinations; the newest rule is tried first\n" +
        "  deny RULE…     Deny destinations and close their connections\n" +
        "  rm RULE…       Remove rules of the sandbox\n" +
        "  mode MODE      Set the mode: none, filtered or open\n" +
        "  log            Print connections and look-ups, allowed and denied\n" +
        "\nA rule is NAME, *.NAME, ADDRESS, ADDRESS/BITS, * or preset:NAME, with :PORTS if not for all ports,\n" +
        "and after the word udp if it is for UDP. Changes apply at once.\n" +
        examples(
          "forkd net 3f2a",
          "forkd net 3f2a allow api.example.com:443 preset:pypi",
          "forkd net 3f2a deny '*.example.com'",
          "forkd net 3f2a rm api.example.com:443",
          "forkd net 3f2a mode open",
          "forkd net 3f2a log -n 20",
          "forkd net 3f2a log -f      # until Ctrl-C",
          "forkd net presets",
        ),
    )
    .action(toAction(network));
  const presets = command.command("presets").description("List and change presets: named lists of rules");
  definePresets(addTableOption(addCommonOptions(presets)), toAction);
}

function definePresets(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nThe rule preset:NAME stands for the rules of a preset. Sandboxes follow changes of a preset at once.\n" +
        examples("forkd net presets", "forkd net presets set mirror mirror.example.com:443"),
    )
    .action(toAction(listPresets));
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  add("show", "Print the rules of a preset")
    .argument("<name>", "Preset")
    .addHelpText("after", examples("forkd net presets show pypi"))
    .action(toAction(showPreset));
  add("set", "Add or change a preset")
    .argument("<name>", "Preset")
    .argument("<rule...>", "All its rules")
    .addHelpText("after", examples("forkd net presets set mirror mirror.example.com:80,443"))
    .action(toAction(setPreset));
  add("rm", "Remove presets; changed bundled ones become as before")
    .argument("<name...>", "Presets")
    .addHelpText("after", examples("forkd net presets rm mirror"))
    .action(toAction(removePresets));
}

async function network(
  cli: Cli,
  options: Options,
  prefix: string,
  action: Action | undefined,
  words: string[],
): Promise<number | void> {
  if (action !== "log" && (options.follow || options.tail !== undefined))
    throw usage("--follow and --tail are for `forkd net ID log`");
  if (action === "log") {
    if (words.length > 0) throw usage("The log takes no rules");
    return untilInterrupted(cli.interrupts, () => printLog(cli, options, prefix));
  }
  const change = action === undefined ? undefined : checked(action, words);
  const sandbox = await cli.sandbox(prefix);
  const info = await (change?.(sandbox, cli.signal) ?? sandbox.network.info({ signal: cli.signal }));
  show(cli, wireOf(info));
}

type Change = (sandbox: Sandbox, signal: AbortSignal) => Promise<Answer>;
type Answer = Awaited<ReturnType<Sandbox["network"]["info"]>>;

/** Refuses wrong words before the daemon is called. */
function checked(action: Exclude<Action, "log">, words: readonly string[]): Change {
  if (action === "mode") {
    const [mode = "", ...more] = words;
    if (!isMode(mode) || more.length > 0) throw usage(`Give one mode: ${networkModes.join(", ")}`);
    return (sandbox, signal) => sandbox.network.set({ mode }, { signal });
  }
  if (words.length === 0) throw usage(`Give at least one rule to ${action === "rm" ? "remove" : action}`);
  if (action === "rm") {
    const rules = readRules(words);
    return (sandbox, signal) => remove(sandbox, rules, signal);
  }
  const destinations = readDestinations(words);
  return (sandbox, signal) => sandbox.network[action](destinations, { signal });
}

function isMode(word: string): word is NetworkMode {
  return (networkModes as readonly string[]).includes(word);
}

/** A rule without its action means the one that the sandbox has, be it allow or deny. */
async function remove(sandbox: Sandbox, rules: readonly RuleWords[], signal: AbortSignal): Promise<Answer> {
  const { rules: all } = await sandbox.network.info({ signal });
  const own = all.filter(({ from }) => from === "sandbox").map(({ rule }) => rule);
  const found = rules.map(({ action, destination }) => {
    const denied = `deny ${destination}`;
    return `${action ?? (own.includes(denied) ? "deny" : "allow")} ${destination}`;
  });
  const missing = found.find((rule) => !own.includes(rule));
  if (missing === undefined) return sandbox.network.remove(found, { signal });
  const inherited = all.find(({ rule, from }) => rule === missing && from !== "sandbox");
  if (inherited !== undefined)
    throw new AppError(
      "invalid_request",
      `Cannot remove "${missing}": it is a rule of the ${inherited.from}`,
      {
        remedy: {
          action: "advice",
          text: `Deny the destination for this sandbox with \`forkd net ${sandbox.id} deny\`.`,
        },
      },
    );
  throw new AppError("invalid_request", `The sandbox has no rule "${missing}"`, {
    details: similarNames(missing, own),
    remedy: { action: "advice", text: `Run \`forkd net ${sandbox.id}\` to list its rules.` },
  });
}

function show(cli: Cli, info: NetworkInfo): void {
  if (cli.out.json) return cli.out.document(info);
  if (!cli.out.quiet) printFacts(cli.out, describeNetwork(info));
  if (info.rules.length > 0) {
    if (!cli.out.quiet) cli.out.line("");
    cli.out.list(info.rules, { columns: ruleColumns, name: ({ rule }) => rule });
  }
  if (info.mode === "none" && info.rules.some(({ rule }) => rule.startsWith("allow ")))
    cli.out.note("The mode is none, so no rule has an effect. Run `forkd net ID mode filtered` to use them.");
}

async function printLog(cli: Cli, { follow, tail }: Options, prefix: string): Promise<void> {
  const sandbox = await cli.sandbox(prefix);
  let suggestion: string | undefined;
  let isEmpty = true;
  for await (const entry of sandbox.network.log({ follow, tail, signal: cli.signal })) {
    isEmpty = false;
    suggestion = entry.suggestion ?? suggestion;
    if (cli.out.json) await cli.out.event(wireOf(entry));
    else await cli.out.bytes(`${describeEntry(wireOf(entry))}\n`);
  }
  if (cli.out.json) return;
  if (isEmpty) cli.out.note("No connections and no look-ups since its machine started.");
  const command = allowCommand(cli.out.id(sandbox.id), suggestion);
  if (command !== undefined) cli.out.note(`Run \`${command}\` to allow what was denied last.`);
}

async function listPresets(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const presets = wireOf<PresetInfo[]>(await forkd.network.presets.list({ signal: cli.signal }));
  cli.out.list(presets, { columns: presetColumns, name: ({ name }) => name });
}

async function showPreset(cli: Cli, _options: unknown, name: string): Promise<void> {
  const forkd = await cli.daemon();
  const presets = wireOf<PresetInfo[]>(await forkd.network.presets.list({ signal: cli.signal }));
  const preset = presets.find((each) => each.name === name);
  if (preset === undefined)
    throw new AppError("not_found", `There is no preset "${name}"`, {
      details: similarNames(
        name,
        presets.map((each) => each.name),
      ),
      remedy: { action: "advice", text: "Run `forkd net presets` to list presets." },
    });
  if (cli.out.json) return cli.out.document(preset);
  for (const rule of preset.rules) cli.out.line(clean(rule));
}

async function setPreset(cli: Cli, _options: unknown, name: string, words: string[]): Promise<void> {
  const rules = readRules(words).map(({ action = "allow", destination }) => `${action} ${destination}`);
  const forkd = await cli.daemon();
  const preset = await forkd.network.presets.set(name, rules, { signal: cli.signal });
  if (cli.out.json) return cli.out.document(wireOf(preset));
  cli.out.line(preset.name);
  cli.out.note(`Preset ${preset.name} has ${plural(preset.rules.length, "rule")}.`);
}

async function removePresets(cli: Cli, _options: unknown, names: string[]): Promise<number> {
  const forkd = await cli.daemon();
  return forEach(cli.out, { items: names, name: "name", done: "removed" }, (name) =>
    forkd.network.presets.remove(name, { signal: cli.signal }),
  );
}
