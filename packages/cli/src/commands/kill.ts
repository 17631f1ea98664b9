import type { Forkd } from "@forkd/sdk";
import type { Command } from "commander";
import { parseLabel, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { forEach, forEachSandbox } from "../terminal/for-each.ts";
import { examples } from "../options/help.ts";

type Options = { all?: true; tag?: string; label?: string };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("[id...]", "Ids or unique prefixes of sandboxes, or workspaces")
    .option("--all", "Kill every sandbox")
    .option("--tag <tag>", "Kill the sandboxes of this snapshot")
    .option("--label <name=value>", "Kill the sandboxes with this label", parseLabel)
    .addHelpText("after", examples("forkd kill 3f2a 9c1d", "forkd kill --label job=42", "forkd kill --all"))
    .action(toAction(kill));
}

async function kill(cli: Cli, options: Options, prefixes: string[]): Promise<number> {
  const filters = [options.all, options.tag, options.label].filter((filter) => filter !== undefined);
  if (prefixes.length === 0 && filters.length === 0)
    throw usage("Give ids of sandboxes, or --all, --tag or --label");
  if (prefixes.length > 0 && filters.length > 0) throw usage("Give either ids or --all, --tag, --label");
  if (options.all && filters.length > 1) throw usage("--all cannot be used with --tag or --label");
  const forkd = await cli.daemon();
  using _progress = cli.progress("Killing sandboxes");
  if (prefixes.length === 0) return killMatching(cli, forkd, options);
  return forEachSandbox(cli, forkd, { prefixes, done: "killed" }, (id) =>
    forkd.sandboxes.kill(id, { signal: cli.signal }),
  );
}

/** One call for all of them; with --all it also stops the children that wait ready. */
async function killMatching(cli: Cli, forkd: Forkd, { tag, label }: Options): Promise<number> {
  const filter = { ...(tag !== undefined && { tag }), ...(label !== undefined && { label }) };
  const killed = await forkd.sandboxes.killAll(filter, { signal: cli.signal });
  if (killed.length === 0) cli.out.note("No sandboxes match.");
  return forEach(cli.out, { items: killed, name: "id", done: "killed" }, async () => undefined);
}
