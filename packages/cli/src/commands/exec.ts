import { AppError } from "@forkd/contract/wire";
import { wireOf, type Sandbox } from "@forkd/sdk";
import type { Command } from "commander";
import { collectEnv, collectLabelFilter, parseDuration, usage, wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import {
  commandSettings,
  requireTerminal,
  runCommand,
  type CommandOptions,
} from "../guest/command-session.ts";
import { examples } from "../options/help.ts";
import { terminalSize } from "../terminal/terminal.ts";

type Options = CommandOptions & {
  detach?: true;
  label?: string[];
  tag?: string;
  all?: true;
  parallel?: number;
};

const defaultParallel = 8;

export function define(command: Command, toAction: ToAction): void {
  command
    .usage("[options] <id> -- <command...>\n       forkd exec [options] --label <name=value> -- <command...>")
    .argument("[id]", "Id or unique prefix of a sandbox, or a workspace")
    .argument("[command...]", "Program and arguments, after --")
    .option("-i, --interactive", "Forward stdin")
    .option("-t, --tty", "Give the command a terminal")
    .option("-d, --detach", "Leave the command running and print its number")
    .option("-e, --env <name=value>", "Set a variable (repeatable)", collectEnv)
    .option("-w, --workdir <path>", "Run in this directory")
    .option("-u, --user <user>", "Run as name, uid, name:group or uid:gid (default: root)")
    .option("--timeout <duration>", "Kill the command after this time (default: no limit)", parseDuration)
    .option("--label <name=value>", "Run in all sandboxes with the label (repeatable)", collectLabelFilter)
    .option("--tag <tag>", "Run in all sandboxes of this snapshot")
    .option("--all", "Run in all sandboxes")
    .option(
      "--parallel <count>",
      `Run in this many at a time (default: ${defaultParallel})`,
      wholeNumber(1, 256),
    )
    .addHelpText(
      "after",
      examples(
        "forkd exec 3f2a -- uname -r",
        "forkd exec 3f2a -it -- bash",
        "tar c . | forkd exec 3f2a -i -w /srv -- tar x",
        "forkd exec --label job=42 -- uname -r",
      ),
    )
    .action(toAction(exec));
}

async function exec(cli: Cli, options: Options, prefix: string | undefined, rest: string[]): Promise<number> {
  const { label, tag, all, parallel } = options;
  if (label !== undefined || tag !== undefined || all) {
    return execInAll(cli, options, prefix === undefined ? [] : [prefix, ...rest]);
  }
  if (prefix === undefined) throw usage("Missing required argument 'id'");
  if (rest.length === 0) throw usage("Missing required argument 'command'");
  if (parallel !== undefined) throw usage("--parallel needs --label, --tag or --all");
  if (!options.detach) requireTerminal(options);
  const sandbox = await cli.sandbox(prefix);
  if (!options.detach) return runCommand(cli, sandbox, rest, options);
  return startInBackground(cli, sandbox, { args: rest, options });
}

async function execInAll(cli: Cli, options: Options, operands: string[]): Promise<number> {
  const { label, tag, all, parallel = defaultParallel } = options;
  if (all && (label !== undefined || tag !== undefined))
    throw usage("--all cannot be used with --label or --tag");
  if (options.interactive || options.tty || options.detach)
    throw usage("-i, -t and -d are for one sandbox: give its id");
  if (operands.length > cli.countAfterDashes)
    throw usage("Give either an id or --label, --tag, --all; the command follows --");
  if (operands.length === 0) throw usage("Missing required argument 'command'");
  const forkd = await cli.daemon();
  const filter = { ...(label !== undefined && { label }), ...(tag !== undefined && { tag }) };
  const found = (await forkd.sandboxes.list(filter, { signal: cli.signal }).all()).map(({ info }) => info);
  const usable = found.filter(
    ({ state, autoResume }) => state === "running" || (state === "paused" && autoResume),
  );
  if (usable.length === 0) {
    const message = "Cannot run the command: no running sandbox matches";
    throw new AppError("sandbox_not_found", message, { details: { ...filter } });
  }
  const paused = found.filter((info) => info.state === "paused" && !info.autoResume).length;
  if (paused > 0) cli.out.note(`Left out ${paused} paused. Run \`forkd resume ID\` to resume a sandbox.`);
  const { runInAll } = await import("../guest/command-group.ts");
  return runInAll(cli, { forkd, sandboxes: usable, args: operands, options, parallel });
}

async function startInBackground(
  cli: Cli,
  sandbox: Sandbox,
  { args, options }: { args: string[]; options: Options },
): Promise<number> {
  const started = await sandbox.commands.run(args, {
    background: true,
    ...commandSettings(cli, options),
    ...(options.interactive && { stdinOpen: true }),
    ...(options.tty && { pty: terminalSize() }),
    signal: cli.signal,
  });
  if (cli.out.json) cli.out.document(wireOf(started));
  else cli.out.line(String(started.execId));
  if (process.stderr.isTTY && !cli.out.json)
    cli.out.note(`Run \`forkd attach ${sandbox.id} ${started.execId}\` to follow it.`);
  return 0;
}
