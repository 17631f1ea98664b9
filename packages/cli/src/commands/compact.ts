import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .requiredOption("--from <tag>", "Copy this snapshot")
    .requiredOption("--to <tag>", "Name the copy, which has no parent")
    .addHelpText("after", examples("forkd compact --from step-9 --to step-9-flat"))
    .action(toAction(compact));
}

async function compact(cli: Cli, { from, to }: { from: string; to: string }): Promise<void> {
  const forkd = await cli.daemon();
  using progress = cli.progress(`Copying ${from} to ${to}`);
  const snapshot = await forkd.snapshots.compact(from, to, { signal: cli.signal });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.document(wireOf(snapshot));
  cli.out.line(snapshot.tag);
  cli.out.note(`Copied ${from} to ${snapshot.tag}, which has no parent.`);
}
