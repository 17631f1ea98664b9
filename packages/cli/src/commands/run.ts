import type { Command } from "commander";
import { collectEnv, parseDuration } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { requireTerminal, runCommand, type CommandOptions } from "../guest/command-session.ts";
import { examples } from "../options/help.ts";

/** If this client vanishes, the sandbox lives at most this much longer than its command. */
const graceSecs = 3600;

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "Snapshot")
    .argument("<command...>", "Program and arguments, after --")
    .option("-i, --interactive", "Forward stdin")
    .option("-t, --tty", "Give the command a terminal")
    .option("-e, --env <name=value>", "Set a variable (repeatable)", collectEnv)
    .option("-w, --workdir <path>", "Run in this directory")
    .option("-u, --user <user>", "Run as name, uid, name:group or uid:gid (default: root)")
    .option("--timeout <duration>", "Kill the command after this time (default: no limit)", parseDuration)
    .addHelpText(
      "after",
      examples("forkd run python-numpy -- python3 -c 'print(1 + 1)'", "forkd run python-numpy -it -- bash"),
    )
    .action(toAction(run));
}

async function run(cli: Cli, options: CommandOptions, tag: string, args: string[]): Promise<number> {
  requireTerminal(options);
  const forkd = await cli.daemon();
  const { timeout } = options;
  const ttl = timeout !== undefined && timeout > 0 ? { ttlSecs: Math.ceil(timeout) + graceSecs } : {};
  const sandbox = await forkd.forkOne(tag, { ...ttl, signal: cli.signal });
  try {
    return await runCommand(cli, sandbox, args, options);
  } finally {
    // Kills the sandbox even after an interrupt, so it passes no signal. Further interrupts are ignored.
    using _interrupts = cli.interrupts.takeOver(() => {});
    await sandbox[Symbol.asyncDispose]();
  }
}
