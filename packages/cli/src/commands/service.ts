/** forkd as a service of systemd. */
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
      "\nThe unit runs the tree that this command belongs to. Without systemd see deploy/ for other ways.\n" +
        examples("forkd service print", "forkd service install --now", "forkd service uninstall"),
    );
  const add = (name: string, summary: string) =>
    addCommonOptions(command.command(name).description(summary)).option(
      "--user",
      "a service of this user, not of the system",
    );
  add("install", "Write the units and enable the service")
    .option("--prefix <dir>", "tree that runs (default: that of this command)")
    .option("--dir <dir>", "directory of the unit (default: systemd's)")
    .option("--now", "also start it")
    .option("--dry-run", "only say what would be done")
    .addHelpText(
      "after",
      examples(
        "forkd service install --now",
        "forkd service install --user",
        "forkd service install --dry-run",
      ),
    )
    .action(toAction(install));
  add("uninstall", "Stop and disable the service and remove its units; data and sandboxes stay")
    .option("--dir <dir>", "directory of the unit (default: systemd's)")
    .option("--dry-run", "only say what would be done")
    .addHelpText("after", examples("forkd service uninstall"))
    .action(toAction(uninstall));
  add("print", "Print a unit")
    .addArgument(new Argument("[unit]", "which").choices(unitNames).default("forkd.service"))
    .option("--prefix <dir>", "tree that runs (default: that of this command)")
    .addHelpText("after", examples("forkd service print > forkd.service"))
    .action(toAction(print));
}

async function print(cli: Cli, { prefix, user }: Options, name: UnitName): Promise<void> {
  const unit = await renderUnit(name, { prefix, user: user === true });
  if (cli.out.json) return cli.out.document({ unit });
  await cli.out.bytes(unit);
}

/** What is done, in order; with --dry-run only told. */
class Steps {
  readonly done: string[] = [];
  readonly #cli: Cli;
  readonly #dryRun: boolean;

  constructor(cli: Cli, options: Options) {
    this.#cli = cli;
    this.#dryRun = options.dryRun === true;
  }

  async take(what: string, act: () => Promise<void>): Promise<void> {
    if (!this.#dryRun) await act();
    this.done.push(what);
    if (!this.#cli.out.json) this.#cli.out.line(this.#dryRun ? `would: ${what}` : what);
  }

  async systemctl(options: Options, ...args: string[]): Promise<void> {
    const all = [...(options.user ? ["--user"] : []), ...args];
    await this.take(`systemctl ${all.join(" ")}`, () => systemctl(all));
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
    await steps.take(`write ${file}`, () => writeUnit(file, unit).catch(rethrow(`Cannot write ${file}`)));
  }
  if (!changed) cli.out.note(`${paths.join(" and ")} are up to date.`);
  const managed = dir === undefined && hasSystemd();
  if (managed) {
    if (changed) await steps.systemctl(options, "daemon-reload");
    await steps.systemctl(options, "enable", ...(options.now ? ["--now"] : []), "forkd.service");
  } else if (dir === undefined) {
    cli.out.note(
      "systemd does not run here, so the unit is not enabled: systemctl enable --now forkd.service",
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
  const there = paths.filter((each) => existsSync(each));
  const isThere = there.length > 0;
  const managed = options.dir === undefined && hasSystemd();
  if (!isThere) cli.out.note(`There is no ${path}.`);
  else {
    if (managed) await steps.systemctl(options, "disable", "--now", "forkd.service");
    for (const each of there)
      await steps.take(`remove ${each}`, () => rm(each).catch(rethrow(`Cannot remove ${each}`)));
    if (managed) await steps.systemctl(options, "daemon-reload");
  }
  finish(cli, { path, changed: isThere, steps: steps.done, dry_run: options.dryRun === true });
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
