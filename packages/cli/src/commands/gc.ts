import type { GcReport } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { parseDuration, wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { formatBytes, type Column } from "../terminal/table.ts";

const columns: readonly Column<GcReport["removed"][number]>[] = [
  { title: "KIND", value: ({ kind }) => kind },
  { title: "NAME", value: ({ name, source }) => (source === undefined ? name : `${name} (${source})`) },
  { title: "BYTES", value: ({ bytes }) => formatBytes(bytes), align: "right" },
];

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .option("-n, --dry-run", "Only print what would be removed")
    .option("--images", "Also remove root file systems and kernels no snapshot uses")
    .option("--branches", "Also remove branches that nothing depends on or runs from")
    .option("--older-than <duration>", "Remove only branches older than this, such as 7d", parseDuration)
    .option("--keep-last <count>", "Keep this many of the newest branches", wholeNumber(0))
    .addHelpText(
      "after",
      examples(
        "forkd gc --dry-run",
        "forkd gc",
        "forkd gc --images",
        "forkd gc --branches --older-than 7d --keep-last 10 --dry-run",
      ),
    )
    .action(toAction(gc));
}

type Options = { dryRun?: true; images?: true; branches?: true; olderThan?: number; keepLast?: number };

async function gc(cli: Cli, options: Options): Promise<void> {
  const forkd = await cli.daemon();
  using progress = cli.progress("Looking for unused files");
  const { images, branches, olderThan, keepLast } = options;
  const report = await forkd.gc({
    dryRun: options.dryRun === true,
    ...(images && { images }),
    ...(branches && { branches }),
    ...(olderThan !== undefined && { olderThanMs: olderThan * 1000 }),
    ...(keepLast !== undefined && { keepLast }),
    signal: cli.signal,
  });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.document(wireOf(report));
  if (report.removed.length > 0) await cli.out.bytes(cli.out.table(columns, report.removed));
  const verb = report.dryRun ? "Would free" : "Freed";
  cli.out.note(
    report.removed.length === 0 ? "Nothing to remove." : `${verb} ${formatBytes(report.freedBytes)}.`,
  );
  if (report.keptImageBytes !== undefined)
    cli.out.note(
      `Unused images take ${formatBytes(report.keptImageBytes)}. \`forkd gc --images\` removes them; a later build makes them again.`,
    );
}
