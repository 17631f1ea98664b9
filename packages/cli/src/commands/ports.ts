import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { listPorts } from "../views/port-table.ts";

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .addHelpText("after", examples("forkd ports 3f2a", "forkd ports 3f2a -q"))
    .action(toAction((cli: Cli, _options: object, prefix: string) => listPorts(cli, prefix)));
}
