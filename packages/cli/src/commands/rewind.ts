import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .requiredOption("--to <tag>", "Return to this ancestor, branch or earlier snapshot of it")
    .addHelpText(
      "after",
      "\nThe sandbox keeps its id; later changes are lost. It can return to every snapshot where it has been.\n" +
        "A dead sandbox starts again with the same id.\n" +
        examples("forkd rewind 3f2a --to before-refactor"),
    )
    .action(toAction(rewind));
}

async function rewind(cli: Cli, { to }: { to: string }, prefix: string): Promise<void> {
  const sandbox = await cli.sandbox(prefix);
  using progress = cli.progress(`Rewinding ${sandbox.id} to ${to}`);
  const info = await sandbox.rewind(to, { signal: cli.signal });
  progress[Symbol.dispose]();
  if (cli.out.json) return cli.out.document(wireOf(info));
  cli.out.line(info.id);
  cli.out.note(`Rewound ${info.id} to ${to} in ${info.readyMs.toFixed(1)} ms.`);
}
