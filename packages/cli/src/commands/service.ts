/** forkd as a service of systemd. */
import { spawn } from "node:child_process";
import { access, rm } from "node:fs/promises";
import { AppError } from "@forkd/contract/wire";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addCommonOptions, examples } from "../help.ts";
import { needsWrite, renderUnit, unitPath, writeUnit } from "../service-unit.ts";

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
  add("install", "Write the unit and enable it")
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
  add("uninstall", "Stop and disable the service and remove its unit; data stays")
    .option("--dir <dir>", "directory of the unit (default: systemd's)")
    .option("--dry-run", "only say what would be done")
    .addHelpText("after", examples("forkd service uninstall"))
    .action(toAction(uninstall));
  add("print", "Print the unit")
    .option("--prefix <dir>", "tree that runs (default: that of this command)")
    .addHelpText("after", examples("forkd service print > forkd.service"))
    .action(toAction(print));
}

async function print(cli: Cli, { prefix, user }: Options): Promise<void> {
  const unit = await renderUnit({ prefix, user: user === true });
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
  const unit = await renderUnit({ prefix, user });
  const path = unitPath({ user, dir }, cli.environment.variables);
  const steps = new Steps(cli, options);
  const changed = await needsWrite(path, unit);
  if (changed)
    await steps.take(`write ${path}`, () => writeUnit(path, unit).catch(rethrow(`Cannot write ${path}`)));
  else cli.out.note(`${path} is up to date.`);
  const managed = dir === undefined && (await hasSystemd());
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
  const path = unitPath({ user: options.user === true, dir: options.dir }, cli.environment.variables);
  const steps = new Steps(cli, options);
  const isThere = await access(path).then(
    () => true,
    () => false,
  );
  const managed = options.dir === undefined && (await hasSystemd());
  if (!isThere) cli.out.note(`There is no ${path}.`);
  else {
    if (managed) await steps.systemctl(options, "disable", "--now", "forkd.service");
    await steps.take(`remove ${path}`, () => rm(path).catch(rethrow(`Cannot remove ${path}`)));
    if (managed) await steps.systemctl(options, "daemon-reload");
  }
  finish(cli, { path, changed: isThere, steps: steps.done, dry_run: options.dryRun === true });
}

function finish(cli: Cli, result: object): void {
  if (cli.out.json) cli.out.document(result);
}

/** What sd_booted(3) looks at. */
function hasSystemd(): Promise<boolean> {
  return access("/run/systemd/system").then(
    () => true,
    () => false,
  );
}

function systemctl(args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn("systemctl", args, { stdio: ["ignore", "inherit", "inherit"] });
    child.once("error", (cause) => reject(new AppError("host_not_ready", "Cannot run systemctl", { cause })));
    child.once("exit", (code) => {
      if (code === 0) resolve();
      else
        reject(new AppError("host_not_ready", `systemctl ${args.join(" ")} failed with exit code ${code}`));
    });
  });
}

function rethrow(what: string): (cause: unknown) => never {
  return (cause) => {
    const code = cause instanceof Error && "code" in cause ? String(cause.code) : String(cause);
    const remedy = "Run it as root, or with --user for a service of your own.";
    throw new AppError("forbidden", `${what}: ${code}`, { details: { remedy }, cause });
  };
}
