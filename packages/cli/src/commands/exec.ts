import type { Sandbox } from "@forkd/sdk";
import type { Command } from "commander";
import { collectEnv, parseDuration } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import {
  commandSettings,
  requireTerminal,
  runCommand,
  type CommandOptions,
} from "../guest/command-session.ts";
import { examples } from "../options/help.ts";
import { terminalSize } from "../terminal/terminal.ts";

type Options = CommandOptions & { detach?: true };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .argument("<command...>", "Program and arguments, after --")
    .option("-i, --interactive", "Forward stdin")
    .option("-t, --tty", "Give the command a terminal")
    .option("-d, --detach", "Leave the command running and print its number")
    .option("-e, --env <name=value>", "Set a variable (repeatable)", collectEnv)
    .option("-w, --workdir <path>", "Run in this directory")
    .option("-u, --user <user>", "Run as name, uid, name:group or uid:gid (default: root)")
    .option("--timeout <duration>", "Kill the command after this time (default: no limit)", parseDuration)
    .addHelpText(
      "after",
      examples(
        "forkd exec 3f2a -- uname -r",
        "forkd exec 3f2a -it -- bash",
        "tar c . | forkd exec 3f2a -i -w /srv -- tar x",
      ),
    )
    .action(toAction(exec));
}

async function exec(cli: Cli, options: Options, prefix: string, args: string[]): Promise<number> {
  if (!options.detach) requireTerminal(options);
  const sandbox = await cli.sandbox(prefix);
  if (!options.detach) return runCommand(cli, sandbox, args, options);
  return startInBackground(cli, sandbox, { args, options });
}

async function startInBackground(
  cli: Cli,
  sandbox: Sandbox,
  { args, options }: { args: string[]; options: Options },
): Promise<number> {
  const started = await sandbox.commands.background(args, {
    ...commandSettings(cli, options),
    ...(options.interactive && { stdinOpen: true }),
    ...(options.tty && { pty: terminalSize() }),
    signal: cli.signal,
  });
  if (cli.out.json) cli.out.document(started);
  else cli.out.line(String(started.exec_id));
  if (process.stderr.isTTY && !cli.out.json)
    cli.out.note(`Run \`forkd attach ${sandbox.id} ${started.exec_id}\` to follow it.`);
  return 0;
}
