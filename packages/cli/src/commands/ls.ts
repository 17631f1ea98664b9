import type { Command } from "commander";
import { parseLabel } from "../arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";
import { sandboxColumns, wideColumns } from "../sandbox-table.ts";

type Options = { tag?: string; label?: string; all?: true; wide?: true };

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--tag <tag>", "only the children of a snapshot")
    .option("--label <name=value>", "only sandboxes with a label", parseLabel)
    .option("-a, --all", "dead ones too")
    .option("-w, --wide", "also owner, limits and timeouts")
    .addHelpText("after", examples("forkd ls", "forkd ls --wide", "forkd ls --label job=42", "forkd ls -q"))
    .action(toAction(ls));
}

async function ls(cli: Cli, { tag, label, all, wide }: Options): Promise<void> {
  const forkd = await cli.daemon();
  const filter = {
    ...(tag !== undefined && { tag }),
    ...(label !== undefined && { label }),
  };
  const found = await forkd.call("listSandboxes", filter, { signal: cli.signal });
  const sandboxes = all ? found : found.filter(({ state }) => state !== "dead");
  if (cli.out.quiet && !cli.out.json) {
    for (const { id } of sandboxes) cli.out.line(id);
    return;
  }
  cli.out.rows([...sandboxColumns(), ...(wide ? wideColumns() : [])], sandboxes);
  if (sandboxes.length === 0) cli.out.note("No sandboxes; `forkd fork --tag TAG` makes some.");
}
