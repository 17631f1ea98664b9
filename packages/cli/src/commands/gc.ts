import type { GcReport } from "@forkd/contract";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";
import { formatBytes, renderTable, type Column } from "../table.ts";

const columns: readonly Column<GcReport["removed"][number]>[] = [
  { title: "KIND", value: ({ kind }) => kind },
  { title: "NAME", value: ({ name }) => name },
  { title: "BYTES", value: ({ bytes }) => formatBytes(bytes), align: "right" },
];

export function define(command: Command, toAction: ToAction): void {
  command
    .option("-n, --dry-run", "only say what would be removed")
    .addHelpText("after", examples("forkd gc --dry-run", "forkd gc"))
    .action(toAction(gc));
}

async function gc(cli: Cli, options: { dryRun?: true }): Promise<void> {
  const forkd = await cli.daemon();
  using progress = cli.progress("Looking for what nothing refers to");
  const report = await forkd.gc({ dryRun: options.dryRun === true, signal: cli.signal });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.document(report);
  if (report.removed.length > 0) await cli.out.bytes(renderTable(columns, report.removed));
  const verb = report.dry_run ? "Would free" : "Freed";
  cli.out.note(
    report.removed.length === 0 ? "Nothing to remove." : `${verb} ${formatBytes(report.freed_bytes)}.`,
  );
}
