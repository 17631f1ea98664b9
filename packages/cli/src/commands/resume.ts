import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { forEachSandbox } from "../terminal/for-each.ts";
import { examples } from "../options/help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id...>", "Ids or unique prefixes of sandboxes, or workspaces")
    .addHelpText("after", examples("forkd resume 3f2a", "forkd resume 3f2a 9c1d"))
    .action(toAction(resume));
}

async function resume(cli: Cli, _options: unknown, prefixes: string[]): Promise<number> {
  const forkd = await cli.daemon();
  using _progress = cli.progress("Resuming sandboxes");
  return forEachSandbox(cli, forkd, { prefixes, done: "resumed" }, async (id) =>
    (await forkd.sandboxes.get(id, { signal: cli.signal })).resume({ signal: cli.signal }),
  );
}
