/** Runs the daemon in this process. The daemon's table of settings says which of them have a flag. */
import { flagsOf, requireSetting, serve as runDaemon, type Flags } from "@forkd/daemon";
import { Option, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import type { DaemonAddress } from "../daemon/start.ts";
import { collectSetting, usage } from "../options/arguments.ts";
import { examples } from "../options/help.ts";

type Options = {
  readonly logFallback?: string;
  readonly set?: Record<string, string>;
  readonly [flag: string]: unknown;
};

export function define(command: Command, toAction: ToAction): void {
  for (const { option, help } of flagsOf()) command.option(option, help);
  command
    .addOption(new Option("--log-fallback <path>", "Set the default of --log-file").hideHelp())
    .option("--set <name=value>", "Set any other setting of `forkd config` (repeatable)", collectSetting)
    .addHelpText(
      "after",
      examples(
        "forkd serve                                                     # until Ctrl-C",
        "forkd serve --listen off --log-level debug                      # until Ctrl-C",
        "forkd serve --listen 0.0.0.0:8889 --tls-cert cert.pem --tls-key key.pem",
        "forkd serve --set max_memory_mib=16384 --set drain_secs=30      # until Ctrl-C",
      ),
    )
    .action(toAction(serve));
}

async function serve(cli: Cli, options: Options): Promise<number> {
  // The daemon handles signals itself; closing the terminal does not stop it.
  using _interrupts = cli.interrupts.takeOver(() => {});
  const defaults = { log_file: options.logFallback };
  // Awaited here: otherwise the CLI would take the signals back at once.
  return await runDaemon({ flags: flagsFrom(options), defaults, onReady: announce });
}

function flagsFrom(options: Options): Flags {
  const flags: Record<string, string> = {};
  for (const { name, option } of flagsOf()) {
    const value = options[new Option(option).attributeName()];
    if (typeof value === "string") flags[name] = value;
    else if (value === true) flags[name] = "true";
  }
  for (const [text, value] of Object.entries(options.set ?? {})) {
    const name = requireSetting(text);
    if (name in flags) throw usage(`The setting ${name} is given twice.`);
    flags[name] = value;
  }
  return flags;
}

/** Tells the process that started this one, if there is one, and closes the channel to it. */
function announce(where: { socket: string; url: string | undefined }): void {
  const address: DaemonAddress = { pid: process.pid, socket: where.socket, url: where.url ?? null };
  process.send?.(address, () => process.disconnect());
}
