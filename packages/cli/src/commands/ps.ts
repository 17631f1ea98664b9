import type { ExecInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import { Command } from "commander";
import { usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { commandColumns } from "../views/command-table.ts";
import { addListOptions, listSandboxes, type ListOptions } from "./ls.ts";

export function define(command: Command, toAction: ToAction): void {
  command.argument("[id]", "Id or unique prefix of a sandbox, or a workspace");
  // Without an id it is `ls`, whose help has these options.
  for (const option of addListOptions(new Command()).options) command.addOption(option.hideHelp());
  command
    .addHelpText(
      "after",
      "\nWithout an id it lists sandboxes, with the options of `forkd ls`.\n" +
        examples("forkd ps 3f2a", "forkd ps 3f2a -q", "forkd ps"),
    )
    .action(toAction(ps));
}

type Options = ListOptions & { json?: true; quiet?: true; trunc?: boolean };

async function ps(cli: Cli, options: Options, prefix: string | undefined): Promise<number | void> {
  if (prefix === undefined) return listSandboxes(cli, options);
  const { json: _json, quiet: _quiet, trunc: _trunc, ...own } = options;
  if (Object.keys(own).length > 0)
    throw usage("Give either the id of a sandbox, or options for the list of sandboxes");
  const sandbox = await cli.sandbox(prefix);
  const commands = wireOf<ExecInfo[]>(await sandbox.commands.list({ signal: cli.signal }));
  cli.out.list(commands, { columns: commandColumns, name: ({ exec_id }) => String(exec_id) });
  if (commands.length === 0)
    cli.out.note(`No commands. Run \`forkd exec ${sandbox.id} -d -- COMMAND\` to start one.`);
}
