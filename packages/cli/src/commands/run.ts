import type { Command } from "commander";
import { collectEnv, parseDuration } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { runCommand, type CommandOptions } from "../guest/command-session.ts";
import { examples } from "../options/help.ts";

/** The sandbox outlives a client that vanished by no more than this. */
const graceSecs = 3600;

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "snapshot")
    .argument("<command...>", "program and arguments, after --")
    .option("-i, --interactive", "pass stdin on")
    .option("-t, --tty", "give the command a terminal")
    .option("-e, --env <name=value>", "environment (repeatable)", collectEnv)
    .option("-w, --workdir <path>", "directory to start in")
    .option("-u, --user <user>", "name, uid, name:group or uid:gid (default: root)")
    .option("--timeout <duration>", "kill the command after this time (default: no limit)", parseDuration)
    .addHelpText(
      "after",
      examples("forkd run python-numpy -- python3 -c 'print(1 + 1)'", "forkd run python-numpy -it -- bash"),
    )
    .action(toAction(run));
}

async function run(cli: Cli, options: CommandOptions, tag: string, args: string[]): Promise<number> {
  const forkd = await cli.daemon();
  const { timeout } = options;
  const ttl = timeout !== undefined && timeout > 0 ? { ttlSecs: Math.ceil(timeout) + graceSecs } : {};
  const sandbox = await forkd.forkOne(tag, { ...ttl, signal: cli.signal });
  try {
    return await runCommand(cli, sandbox, args, options);
  } finally {
    // No signal: the sandbox is killed whatever ended the command. Further interrupts wait for it.
    using _interrupts = cli.interrupts.takeOver(() => {});
    await sandbox[Symbol.asyncDispose]();
  }
}
