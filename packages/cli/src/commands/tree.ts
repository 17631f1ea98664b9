import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { renderTree } from "../views/lineage.ts";

export function define(command: Command, toAction: ToAction): void {
  command.addHelpText("after", examples("forkd tree", "forkd tree --json")).action(toAction(tree));
}

async function tree(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const lineage = await forkd.tree({ signal: cli.signal });
  if (cli.out.json) return cli.out.document(lineage);
  const lines = renderTree(lineage, { ascii: !cli.environment.unicode });
  for (const line of lines) cli.out.line(line);
  if (lines.length === 0) cli.out.note("No snapshots. Run `forkd build python-numpy` to build one.");
}
