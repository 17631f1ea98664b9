import type { RemovedSnapshots } from "@forkd/sdk";
import type { Command } from "commander";
import { usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { forEach } from "../terminal/for-each.ts";
import { examples } from "../options/help.ts";
import { formatBytes } from "../terminal/table.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag...>", "Snapshots")
    .option("--cascade", "Also remove the snapshots that are layers over it")
    .option("--force", "Remove it even if something depends on it")
    .option("-n, --dry-run", "Only print what would be removed")
    .addHelpText(
      "after",
      "\nAfter --force, sandboxes keep running and layers over the snapshot become unusable.\n" +
        examples("forkd rmi old-tag", "forkd rmi --cascade --dry-run base", "forkd rmi --force a b"),
    )
    .action(toAction(rmi));
}

type Options = { cascade?: true; force?: true; dryRun?: true };

async function rmi(cli: Cli, { cascade, force, dryRun }: Options, tags: string[]): Promise<number> {
  if (cascade && force) throw usage("Give either --cascade or --force");
  const forkd = await cli.daemon();
  using _progress = cli.progress(dryRun ? "Looking for snapshots" : "Removing snapshots");
  let freed = 0;
  const batch = {
    items: tags,
    name: "tag",
    done: dryRun ? "would_be_removed" : "removed",
    inTurn: true,
    show: ({ removed, freedBytes }: RemovedSnapshots) => {
      freed += freedBytes;
      const snapshots = removed.map(({ tag }) => tag);
      return { lines: snapshots, json: { snapshots, freed_bytes: freedBytes } };
    },
  } as const;
  const code = await forEach(cli.out, batch, (tag) =>
    forkd.snapshots.remove(tag, { cascade, force, dryRun, signal: cli.signal }),
  );
  if (freed > 0 && !cli.out.json) cli.out.note(`${dryRun ? "Would free" : "Freed"} ${formatBytes(freed)}.`);
  return code;
}
