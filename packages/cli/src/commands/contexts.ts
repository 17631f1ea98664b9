import type { Language } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { collectText, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { languageOption } from "../options/language.ts";
import { forEach } from "../terminal/for-each.ts";
import type { Column } from "../terminal/table.ts";

type Options = { language?: Language; drop?: string[] };
type EvalContext = { name: string; language: Language };

const columns: readonly Column<EvalContext>[] = [
  { title: "CONTEXT", value: ({ name }) => name },
  { title: "LANGUAGE", value: ({ language }) => language },
];

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .option("--drop <name>", "Remove this context and its variables (repeatable)", collectText)
    .addOption(languageOption())
    .addHelpText(
      "after",
      "\nA context is a set of variables: see `forkd eval --context`.\n" +
        examples("forkd contexts 3f2a", "forkd contexts 3f2a --drop job-7"),
    )
    .action(toAction(contexts));
}

async function contexts(cli: Cli, options: Options, prefix: string): Promise<number | void> {
  const { language, drop } = options;
  if (drop?.includes("")) throw usage("--drop needs the name of a context");
  const sandbox = await cli.sandbox(prefix);
  if (drop !== undefined) {
    return forEach(cli.out, { items: drop, name: "name", done: "dropped", inTurn: true }, (name) =>
      sandbox.contexts.drop(name, { language, signal: cli.signal }),
    );
  }
  const all = await sandbox.contexts.list({ signal: cli.signal });
  const found = all.filter((each) => language === undefined || each.language === language);
  cli.out.list(wireOf<typeof found>(found), { columns, name: ({ name }) => name });
  if (found.length === 0) cli.out.note("No contexts. Run `forkd eval ID CODE` to evaluate code.");
}
