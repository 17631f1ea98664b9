import { AppError } from "@forkd/contract/wire";
import { Sandbox } from "@forkd/sdk";
import type { Command } from "commander";
import { parseDuration, usage } from "../options/arguments.ts";
import { addSandboxOptions, readChildSettings, type ChildOptions } from "../options/children.ts";
import type { Cli, ToAction } from "../cli.ts";
import { requireTerminal, runCommand, type CommandOptions } from "../guest/command-session.ts";
import { examples } from "../options/help.ts";

type Options = CommandOptions & ChildOptions;

/** If this client vanishes, the sandbox lives at most this much longer than its command. */
const graceMs = 3_600_000;

export function define(command: Command, toAction: ToAction): void {
  addSandboxOptions(command)
    .argument("<tag>", "Snapshot")
    .argument("<command...>", "Program and arguments, after --")
    .option("-i, --interactive", "Forward stdin")
    .option("-t, --tty", "Give the command a terminal")
    .option("-w, --workdir <path>", "Run in this directory")
    .option("-u, --user <user>", "Run as name, uid, name:group or uid:gid (default: root)")
    .option("--timeout <duration>", "Kill the command after this time (default: no limit)", parseDuration)
    .addHelpText(
      "after",
      examples(
        "forkd run python-numpy -- python3 -c 'print(1 + 1)'",
        "forkd run python-numpy --label job=42 --ttl 10m --idle-timeout 5m -- python3 -V",
        "forkd run python-numpy --allow preset:pypi -- python3 -V",
        "forkd run python-numpy -it -- bash",
      ),
    )
    .action(toAction(run));
}

async function run(cli: Cli, options: Options, tag: string, args: string[]): Promise<number> {
  requireTerminal(options);
  if (options.vary === "-" && options.interactive) throw usage("--vary - and -i both read stdin");
  const settings = await readChildSettings(options);
  const forkd = await cli.daemon();
  const { timeout } = options;
  const grace = timeout !== undefined && timeout > 0 ? timeout * 1000 + graceMs : undefined;
  const [sandbox] = await forkd.fork(tag, 1, { ttlMs: grace, ...settings, signal: cli.signal });
  if (!(sandbox instanceof Sandbox))
    throw sandbox ?? new AppError("internal", `The daemon answered a fork of "${tag}" with no child`);
  try {
    return await runCommand(cli, sandbox, args, options);
  } finally {
    // Kills the sandbox even after an interrupt, so it passes no signal. Further interrupts are ignored.
    using _interrupts = cli.interrupts.takeOver(() => {});
    await sandbox[Symbol.asyncDispose]();
  }
}
