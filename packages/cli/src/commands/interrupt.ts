import type { Language } from "@forkd/contract";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { languageOption } from "../options/language.ts";

type Options = { language?: Language; context?: string };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .option("--context <name>", "Interrupt only code of this context (default: any)")
    .addOption(languageOption())
    .addHelpText(
      "after",
      "\nThe interrupted eval ends with an error; its variables stay.\n" +
        examples("forkd interrupt 3f2a", "forkd interrupt 3f2a --context job-7"),
    )
    .action(toAction(interrupt));
}

async function interrupt(cli: Cli, { language, context }: Options, prefix: string): Promise<void> {
  const sandbox = await cli.sandbox(prefix);
  await sandbox.interrupt({ language, context, signal: cli.signal });
  if (cli.out.json) return cli.out.document({ id: sandbox.id, interrupted: true });
  cli.out.line(sandbox.id);
}
