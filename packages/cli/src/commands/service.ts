/** Installs forkd as a systemd service. */
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { advice, AppError } from "@forkd/contract/wire";
import { Argument, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addCommonOptions, examples } from "../options/help.ts";
import { hasSystemd, systemctl } from "../daemon/systemd.ts";
import {
  needsWrite,
  renderUnit,
  unitNames,
  unitPath,
  writeUnit,
  type UnitName,
} from "../daemon/service-unit.ts";

type Options = { prefix?: string; user?: true; dir?: string; now?: true; dryRun?: true };

export function define(command: Command, toAction: ToAction): void {
  command
    .enablePositionalOptions()
    .addHelpText(
      "after",
      "\nThe unit runs the tree of this command. deploy/ has files for hosts without systemd.\n" +
        examples("forkd service print", "forkd service install --now", "forkd service uninstall"),
    );
  const add = (name: string, summary: string) =>
    addCommonOptions(command.command(name).description(summary)).option(
      "--user",
      "Use the service manager of this user, not of the system",
    );
  add("install", "Write the units and enable the service")
    .option("--prefix <dir>", "Run this tree (default: the tree of this command)")
    .option("--dir <dir>", "Write the units here (default: systemd's directory)")
    .option("--now", "Also start the service")
    .option("--dry-run", "Only print the steps")
    .addHelpText(
      "after",
      examples(
        "forkd service install --now",
        "forkd service install --user",
        "forkd service install --dry-run",
      ),
    )
    .action(toAction(install));
  add("uninstall", "Stop the service and remove its units; keep data")
    .option("--dir <dir>", "Remove the units here (default: systemd's directory)")
    .option("--dry-run", "Only print the steps")
    .addHelpText("after", examples("forkd service uninstall"))
    .action(toAction(uninstall));
  add("print", "Print a unit")
    .addArgument(new Argument("[unit]", "Unit").choices(unitNames).default("forkd.service"))
    .option("--prefix <dir>", "Run this tree (default: the tree of this command)")
    .addHelpText("after", examples("forkd service print > forkd.service"))
    .action(toAction(print));
}

async function print(cli: Cli, { prefix, user }: Options, name: UnitName): Promise<void> {
  const unit = await renderUnit(name, { prefix, user: user === true });
  if (cli.out.json) return cli.out.document({ unit });
  await cli.out.bytes(unit);
}

/** Runs steps in order and prints them; with --dry-run it only prints them. */
class Steps {
  readonly done: string[] = [];
  readonly #cli: Cli;
  readonly #dryRun: boolean;

  constructor(cli: Cli, options: Options) {
    this.#cli = cli;
    this.#dryRun = options.dryRun === true;
  }

  async run(what: string, act: () => Promise<void>): Promise<void> {
    if (!this.#dryRun) await act();
    this.done.push(what);
    if (!this.#cli.out.json) this.#cli.out.line(this.#dryRun ? `would: ${what}` : what);
  }

  async systemctl(options: Options, ...args: string[]): Promise<void> {
    const all = [...(options.user ? ["--user"] : []), ...args];
    await this.run(`systemctl ${all.join(" ")}`, () => systemctl(all));
  }
}

async function install(cli: Cli, options: Options): Promise<void> {
  const { prefix, dir } = options;
  const user = options.user === true;
  const steps = new Steps(cli, options);
  const path = unitPath("forkd.service", { user, dir }, cli.environment.variables);
  const paths: string[] = [];
  let changed = false;
  for (const name of unitNames) {
    const unit = await renderUnit(name, { prefix, user });
    const file = unitPath(name, { user, dir }, cli.environment.variables);
    paths.push(file);
    if (!(await needsWrite(file, unit))) continue;
    changed = true;
    await steps.run(`write ${file}`, () => writeUnit(file, unit).catch(rethrow(`Cannot write ${file}`)));
  }
  if (!changed) cli.out.note(`${paths.join(" and ")} are up to date.`);
  const managed = dir === undefined && hasSystemd();
  if (managed) {
    if (changed) await steps.systemctl(options, "daemon-reload");
    await steps.systemctl(options, "enable", ...(options.now ? ["--now"] : []), "forkd.service");
  } else if (dir === undefined) {
    cli.out.note(
      "systemd does not run here. To enable the unit, run `systemctl enable --now forkd.service` later.",
    );
  }
  finish(cli, { path, changed, enabled: managed, steps: steps.done, dry_run: options.dryRun === true });
}

async function uninstall(cli: Cli, options: Options): Promise<void> {
  const paths = unitNames.map((name) =>
    unitPath(name, { user: options.user === true, dir: options.dir }, cli.environment.variables),
  );
  const [path] = paths;
  const steps = new Steps(cli, options);
  const present = paths.filter((each) => existsSync(each));
  const isInstalled = present.length > 0;
  const managed = options.dir === undefined && hasSystemd();
  if (!isInstalled) cli.out.note(`There is no ${path}.`);
  else {
    if (managed) await steps.systemctl(options, "disable", "--now", "forkd.service");
    for (const each of present)
      await steps.run(`remove ${each}`, () => rm(each).catch(rethrow(`Cannot remove ${each}`)));
    if (managed) await steps.systemctl(options, "daemon-reload");
  }
  finish(cli, { path, changed: isInstalled, steps: steps.done, dry_run: options.dryRun === true });
}

function finish(cli: Cli, result: object): void {
  if (cli.out.json) cli.out.document(result);
}

function rethrow(what: string): (cause: unknown) => never {
  return (cause) => {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : String(cause);
    const remedy = advice("Run it as root, or with --user for your own service.");
    throw new AppError("forbidden", `${what}: ${code}`, { remedy, cause });
  };
}
