import { AppError } from "@forkd/contract/wire";
import { CommandError, outputBytes, type OutputEvent } from "@forkd/sdk";
import type { Command } from "commander";
import { collectEnv, parseDuration, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { formatBytes } from "../terminal/table.ts";

type Options = {
  from: string;
  tag: string;
  exec?: string;
  env?: Record<string, string>;
  timeout?: number;
};

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[command...]", "program and arguments, after --")
    .requiredOption("--from <tag>", "snapshot to start from")
    .requiredOption("--tag <tag>", "name of the new snapshot")
    .option("--exec <line>", "command line for /bin/sh, in place of a command")
    .option("-e, --env <name=value>", "environment of the command (repeatable)", collectEnv)
    .option("--timeout <duration>", "give up after this time (default: no limit)", parseDuration)
    .addHelpText(
      "after",
      "\nForks a sandbox, runs the command, captures what it leaves behind and kills the sandbox. The output of the\n" +
        "command goes to stderr. A command that fails makes no snapshot.\n" +
        examples(
          "forkd derive --from python-numpy --tag with-data -- sh -c 'seq 3 > /srv/data'",
          "forkd derive --from with-data --tag built --timeout 10m --exec 'cd /srv && wc -l data'",
        ),
    )
    .action(toAction(derive));
}

async function derive(cli: Cli, options: Options, command: string[]): Promise<void> {
  const { from, tag, exec, env, timeout } = options;
  if ((exec === undefined) === (command.length === 0)) throw usage("give a command after --, or --exec LINE");
  const argv = exec === undefined ? command : ["/bin/sh", "-c", exec];
  const forkd = await cli.daemon();
  using progress = cli.progress(`Making ${tag} from ${from}`);
  // The first interrupt ends the command; further ones wait until the sandbox is killed.
  using _interrupts = cli.interrupts.takeOver((name) => {
    if (!cli.signal.aborted) cli.interrupts.abort(name);
  });
  const branch = await forkd.snapshots
    .derive({
      from,
      tag,
      argv,
      env,
      timeoutSecs: timeout,
      signal: cli.signal,
      onOutput: (event) => show(event),
    })
    .catch((error: unknown) => {
      throw error instanceof CommandError ? withoutTail(error) : error;
    });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.event({ type: "snapshot", snapshot: branch });
  cli.out.line(branch.tag);
  cli.out.note(`Made ${branch.tag} from ${from}: ${formatBytes(branch.diff_logical_bytes)} diverged.`);

  function show(event: OutputEvent): Promise<void> {
    // The output says what happens better than the line of progress, which it would run into.
    progress[Symbol.dispose]();
    return cli.out.json ? cli.out.event(event) : cli.out.bytes(outputBytes(event), "stderr");
  }
}

/** The output has been shown already. */
function withoutTail(error: CommandError): AppError {
  const [message = ""] = error.message.split("\n");
  return new AppError(error.code, `${message}; no snapshot was made`, {
    details: { ...error.details },
    cause: error,
  });
}
