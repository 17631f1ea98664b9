/** Shows the settings that a daemon would use, and edits config.json. Neither needs nor starts a daemon. */
import type { SettingInfo } from "@forkd/contract";
import { AppError } from "@forkd/contract/wire";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { usage } from "../options/arguments.ts";
import { addCommonOptions, addTableOption, examples } from "../options/help.ts";
import { clean, type Column } from "../terminal/table.ts";

/** A setting, and the value of the running daemon if that differs. */
type Shown = SettingInfo & { running?: SettingInfo["value"] };

const columns: readonly Column<Shown>[] = [
  { title: "SETTING", value: ({ name }) => name },
  { title: "VALUE", value: ({ value }) => describeValue(value) },
  { title: "FROM", value: ({ source }) => source },
  { title: "ALLOWED", value: ({ allowed }) => allowed, drop: 1 },
  { title: "MEANING", value: ({ meaning }) => meaning, below: true },
];

/** "-" for a setting that is not set. */
function describeValue(value: SettingInfo["value"]): string {
  return value === null || value === "" || value === "[]" ? "-" : String(value);
}

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nThe daemon reads settings when it starts. For each it uses the first of: a flag of `forkd serve`, its\n" +
        "variable (FORKD_NAME), config.json in the data directory, its default.\n" +
        examples("forkd config", "forkd config get max_sandboxes", "forkd config set max_sandboxes 200"),
    );
  const add = (name: string, summary: string) => addCommonOptions(command.command(name).description(summary));
  command.action(toAction(show));
  addTableOption(add("show", "Show every setting: value, origin, range, meaning"))
    .addHelpText("after", examples("forkd config show", "forkd config show --json"))
    .action(toAction(show));
  add("get", "Print the value of one setting")
    .argument("<name>", "Setting")
    .addHelpText("after", examples("forkd config get data_dir"))
    .action(toAction(get));
  add("set", "Write settings into config.json, all or none")
    .argument("<name>", "Setting")
    .argument("<value>", "Value")
    .argument("[more...]", "More names, each followed by its value")
    .addHelpText(
      "after",
      examples("forkd config set log_level debug", "forkd config set max_sandboxes 200 max_memory_mib 16384"),
    )
    .action(toAction(set));
  add("unset", "Remove settings from config.json")
    .argument("<name...>", "Settings")
    .addHelpText("after", examples("forkd config unset log_level"))
    .action(toAction(unset));
  add("check", "Check whether a daemon would start with the settings")
    .addHelpText("after", examples("forkd config check"))
    .action(toAction(check));
}

async function show(cli: Cli): Promise<void> {
  const { file, settings } = await read(cli);
  const running = await runningValues(cli);
  const shown: Shown[] = settings.map((setting) => {
    const used = running?.settings.get(setting.name);
    return used && used.value !== setting.value ? { ...setting, running: used.value } : setting;
  });
  if (cli.out.json) return cli.out.document({ file, daemon_pid: running?.pid ?? null, settings: shown });
  cli.out.list(shown, { columns, name: ({ name }) => name });
  cli.out.note(`The file is ${file}.`);
  for (const setting of settings) {
    const used = running?.settings.get(setting.name);
    if (!used || !differs(used, setting)) continue;
    const [name, now, here] = [setting.name, used.value, setting.value].map((each) => clean(String(each)));
    cli.out.note(`The running daemon (pid ${running?.pid}) uses ${name} = ${now}, not ${here}.`);
  }
}

async function get(cli: Cli, _options: unknown, name: string): Promise<void> {
  const { requireSetting } = await import("../daemon/local.ts");
  const wanted = await requireSetting(name);
  const setting = (await read(cli)).settings.find((each) => each.name === wanted);
  if (cli.out.json) return cli.out.document(setting);
  cli.out.line(String(setting?.value));
}

async function set(
  cli: Cli,
  _options: unknown,
  name: string,
  value: string,
  more: string[] = [],
): Promise<void> {
  const words = [name, value, ...more];
  if (words.length % 2 !== 0) throw usage(`"${words.at(-1)}" has no value. Give NAME VALUE once or more.`);
  const given: [string, string][] = [];
  for (let at = 0; at < words.length; at += 2) given.push([words[at] ?? "", words[at + 1] ?? ""]);
  const { setSettings } = await import("../daemon/local.ts");
  await report(cli, await setSettings(given, cli.environment.variables), "Set");
}

async function unset(cli: Cli, _options: unknown, names: string[]): Promise<void> {
  const { unsetSettings } = await import("../daemon/local.ts");
  await report(cli, await unsetSettings(names, cli.environment.variables), "Unset");
}

type Change = Awaited<ReturnType<(typeof import("../daemon/local.ts"))["setSettings"]>>[number];

async function report(cli: Cli, changes: readonly Change[], verb: string): Promise<void> {
  const running = await runningValues(cli);
  const told = changes.map((change) => {
    const used = running?.settings.get(change.name);
    const { effective } = change;
    return {
      ...change,
      needs_restart: used !== undefined && effective !== undefined && differs(used, effective),
    };
  });
  if (cli.out.json) return cli.out.document(told.length === 1 ? told[0] : told);
  for (const { name, file, value, effective } of told) {
    cli.out.line(`${verb} ${name}${value === null ? "" : ` = ${clean(String(value))}`} in ${file}`);
    if (effective?.source === "environment")
      cli.out.note(
        `It has no effect here: ${effective.variable}=${clean(String(effective.value))} in the environment overrides it.`,
      );
  }
  if (told.some(({ needs_restart }) => needs_restart))
    cli.out.note(`The running daemon (pid ${running?.pid}) keeps the old value until the next restart.`);
}

async function check(cli: Cli): Promise<void> {
  const { file, settings } = await read(cli);
  const { strayVariables } = await import("../daemon/local.ts");
  const stray = await strayVariables(cli.environment.variables);
  if (cli.out.json)
    return cli.out.document({ ok: true, file, settings: settings.length, unknown_variables: stray });
  for (const name of stray) cli.out.note(`${name} is in the environment, but there is no such setting.`);
  cli.out.line(`ok: ${settings.length} settings; the file is ${file}`);
}

async function read(cli: Cli): Promise<{ file: string; settings: SettingInfo[] }> {
  const { localSettings } = await import("../daemon/local.ts");
  return localSettings(cli.environment.variables);
}

/** Two defaults may differ without being different settings: `up` and `serve` have different log files. */
function differs(used: SettingInfo, setting: SettingInfo): boolean {
  return used.value !== setting.value && !(used.source === "default" && setting.source === "default");
}

type Running = { pid: number; settings: Map<string, SettingInfo> };

/** The settings of the running daemon; undefined if there is none, it refuses, or it lacks the route. */
async function runningValues(cli: Cli): Promise<Running | undefined> {
  const { findDaemon } = await import("../daemon/client.ts");
  try {
    const forkd = await findDaemon(cli.signal);
    if (forkd === undefined) return undefined;
    const { pid, settings } = await forkd.config({ signal: cli.signal });
    return { pid, settings: new Map(settings.map((setting) => [setting.name, setting])) };
  } catch (error) {
    if (
      error instanceof AppError &&
      ["not_found", "forbidden", "unauthenticated", "other_daemon"].includes(error.code)
    )
      return undefined;
    throw error;
  }
}
