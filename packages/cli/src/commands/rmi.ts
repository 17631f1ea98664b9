import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { forEach } from "../for-each.ts";
import { examples } from "../help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag...>", "snapshots")
    .option("--force", "also if sandboxes run from it; they go on")
    .addHelpText("after", examples("forkd rmi old-tag", "forkd rmi --force a b"))
    .action(toAction(rmi));
}

async function rmi(cli: Cli, options: { force?: true }, tags: string[]): Promise<number> {
  const forkd = await cli.daemon();
  using _progress = cli.progress("Removing");
  const force = options.force && { force: "true" as const };
  return forEach(cli.out, { items: tags, name: "tag", done: "removed" }, (tag) =>
    forkd.call("removeSnapshot", { tag, ...force }, { signal: cli.signal }),
  );
}
