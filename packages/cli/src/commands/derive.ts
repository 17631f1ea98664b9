import { AppError } from "@forkd/contract/wire";
import { CommandError, outputBytes, type OutputEvent, wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { collectEnv, parseDuration, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { addNetworkOptions, readNetwork, type NetworkOptions } from "../options/network.ts";
import { formatBytes } from "../terminal/table.ts";

type Options = NetworkOptions & {
  from: string;
  tag: string;
  exec?: string;
  env?: Record<string, string>;
  timeout?: number;
};

export function define(command: Command, toAction: ToAction): void {
  addNetworkOptions(command)
    .argument("[command...]", "Program and arguments, after --")
    .requiredOption("--from <tag>", "Start from this snapshot")
    .requiredOption("--tag <tag>", "Name the new snapshot")
    .option("--exec <line>", "Run this line with /bin/sh, instead of a command")
    .option("-e, --env <name=value>", "Set a variable (repeatable)", collectEnv)
    .option("--timeout <duration>", "Kill the command after this time (default: no limit)", parseDuration)
    .addHelpText(
      "after",
      "\nForks a sandbox, runs the command in it, snapshots the sandbox and kills it. Output of the command\n" +
        "goes to stderr. A command that fails makes no snapshot. The new snapshot keeps mode and rules, not secrets.\n" +
        examples(
          "forkd derive --from python-numpy --tag with-data -- sh -c 'seq 3 > /srv/data'",
          "forkd derive --from with-data --tag built --timeout 10m --exec 'cd /srv && wc -l data'",
        ),
    )
    .action(toAction(derive));
}

async function derive(cli: Cli, options: Options, command: string[]): Promise<void> {
  const { from, tag, exec, env, timeout } = options;
  if ((exec === undefined) === (command.length === 0)) throw usage("Give a command after --, or --exec LINE");
  const network = readNetwork(options);
  const forkd = await cli.daemon();
  using progress = cli.progress(`Deriving ${tag} from ${from}`);
  // The first interrupt stops the command; further ones are ignored until the sandbox is killed.
  using _interrupts = cli.interrupts.takeOver((name) => {
    if (!cli.signal.aborted) cli.interrupts.abort(name);
  });
  const branch = await forkd.snapshots
    .derive({
      from,
      tag,
      command: exec ?? command,
      env,
      commandTimeoutMs: timeout === undefined ? undefined : timeout * 1000,
      ...network,
      signal: cli.signal,
      onOutput: (event) => show(event),
    })
    .catch((error: unknown) => {
      throw error instanceof CommandError ? withoutTail(error) : error;
    });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.event({ type: "snapshot", snapshot: wireOf(branch) });
  cli.out.line(branch.tag);
  cli.out.note(`Derived ${branch.tag} from ${from}: ${formatBytes(branch.diffLogicalBytes)} diverged.`);

  function show(event: OutputEvent): Promise<void> {
    // Output of the command replaces the line of progress, which would be in the way.
    progress[Symbol.dispose]();
    return cli.out.json ? cli.out.event(wireOf(event)) : cli.out.bytes(outputBytes(event), "stderr");
  }
}

/** The output has already been printed. */
function withoutTail(error: CommandError): AppError {
  const [message = ""] = error.message.split("\n");
  return new AppError(error.code, `${message}; no snapshot was made`, {
    details: { ...error.details },
    cause: error,
  });
}
