import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<registry>", "Host of the registry, with its port")
    .addHelpText("after", examples("forkd logout ghcr.io"))
    .action(toAction(logout));
}

/** Succeeds if there is nothing to remove: afterwards this user has no password for the registry. */
async function logout(cli: Cli, _options: unknown, text: string): Promise<void> {
  const { dropCredentials, parseRegistry } = await import("../hub/registry-access.ts");
  const registry = parseRegistry(text.replace(/^https?:\/\//, "").replace(/\/(v[12]\/?)?$/, ""));
  const places = await dropCredentials(registry);
  if (cli.out.json) return cli.out.document({ registry, removed_from: places });
  cli.out.line(registry);
  cli.out.note(
    places.length === 0
      ? `There was no password for ${registry}.`
      : `The password for ${registry} is removed from ${places.join(" and ")}.`,
  );
}
