import type { CleanupReport } from "@forkd/contract";
import { plural } from "@forkd/contract/wire";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import type { Column } from "../terminal/table.ts";

const columns: readonly Column<CleanupReport["removed"][number]>[] = [
  { title: "KIND", value: ({ kind }) => kind },
  { title: "NAME", value: ({ name }) => name },
  { title: "DETAIL", value: ({ detail }) => detail, below: true },
];

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .option("--dry-run", "Only print what would be removed")
    .addHelpText("after", examples("forkd cleanup --dry-run", "forkd cleanup"))
    .action(toAction(cleanup));
}

async function cleanup(cli: Cli, options: { dryRun?: true }): Promise<void> {
  const forkd = await cli.daemon();
  using _progress = cli.progress("Looking for leftovers");
  const report = await forkd.cleanup({ dryRun: options.dryRun === true, signal: cli.signal });
  if (cli.out.json) return cli.out.document(wireOf(report));
  if (report.removed.length > 0) await cli.out.bytes(cli.out.table(columns, report.removed));
  const verb = report.dryRun ? "Would remove" : "Removed";
  const { length } = report.removed;
  cli.out.note(length === 0 ? "Nothing to remove." : `${verb} ${plural(length, "leftover")}.`);
}
