import type { SandboxInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import { Option, type Command } from "commander";
import { parseLifetime, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { sandboxColumns, wideColumns } from "../views/sandbox-table.ts";

/** Seconds; 0 for none, because a parser of options cannot return null. */
type Time = number;
type Options = { ttl?: Time; idle?: Time; onTimeout?: "kill" | "pause"; autoResume?: boolean };

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .option("--ttl <duration>", 'Set the time to live from now, or "none"', parseTime)
    .option("--idle <duration>", 'Set the longest time without a call, or "none"', parseTime)
    .addOption(new Option("--on-timeout <action>", "Set the action of a timeout").choices(["kill", "pause"]))
    .option("--auto-resume", "Resume the paused sandbox when a call needs it")
    .option("--no-auto-resume", "Refuse calls while it is paused")
    .addHelpText(
      "after",
      "\nOptions that are not given stay as they are.\n" +
        examples(
          "forkd timeouts 3f2a --ttl 1h",
          "forkd timeouts 3f2a --idle 10m --on-timeout pause --auto-resume",
        ),
    )
    .action(toAction(timeouts));
}

function parseTime(text: string): Time {
  return text === "none" ? 0 : parseLifetime(text);
}

function toMs(time: Time | undefined): number | null | undefined {
  return time === undefined ? undefined : time * 1000 || null;
}

async function timeouts(cli: Cli, options: Options, prefix: string): Promise<void> {
  const { ttl, idle, onTimeout, autoResume } = options;
  if ([ttl, idle, onTimeout, autoResume].every((value) => value === undefined))
    throw usage("Give at least one of --ttl, --idle, --on-timeout, --auto-resume and --no-auto-resume");
  const sandbox = await cli.sandbox(prefix);
  const changes = { ttlMs: toMs(ttl), idleTimeoutMs: toMs(idle), onTimeout, autoResume };
  const info = wireOf<SandboxInfo>(await sandbox.setTimeouts(changes, { signal: cli.signal }));
  if (cli.out.json) return cli.out.document(info);
  cli.out.rows([...sandboxColumns(), ...wideColumns()], [info], { wide: true });
}
