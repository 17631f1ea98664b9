import type { Command } from "commander";
import { usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { forEach } from "../terminal/for-each.ts";
import { examples } from "../options/help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag...>", "Snapshots")
    .option("--cascade", "Also remove the snapshots that are layers over it")
    .option("--force", "Remove it even if something depends on it")
    .addHelpText(
      "after",
      "\nAfter --force, sandboxes keep running and layers over the snapshot become unusable.\n" +
        examples("forkd rmi old-tag", "forkd rmi --cascade base", "forkd rmi --force a b"),
    )
    .action(toAction(rmi));
}

async function rmi(cli: Cli, options: { cascade?: true; force?: true }, tags: string[]): Promise<number> {
  const { cascade, force } = options;
  if (cascade && force) throw usage("give either --cascade or --force");
  const forkd = await cli.daemon();
  using _progress = cli.progress("Removing snapshots");
  return forEach(cli.out, { items: tags, name: "tag", done: "removed", inTurn: true }, (tag) =>
    forkd.snapshots.remove(tag, { cascade, force, signal: cli.signal }),
  );
}
