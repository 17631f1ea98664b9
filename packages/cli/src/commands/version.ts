import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { ownVersion } from "../version.ts";

export function define(command: Command, toAction: ToAction): void {
  command.addHelpText("after", examples("forkd version", "forkd version --json")).action(toAction(version));
}

/** Starts no daemon. */
async function version(cli: Cli): Promise<void> {
  const { findDaemon } = await import("../daemon/client.ts");
  const own = ownVersion();
  const forkd = await findDaemon(cli.signal);
  const daemon = forkd && (await forkd.version({ signal: cli.signal }));
  if (cli.out.json) return cli.out.document({ cli: own, daemon: wireOf(daemon ?? null) });
  cli.out.line(`forkd ${own}`);
  cli.out.line(daemon === undefined ? "daemon not running" : `daemon ${daemon.version} (pid ${daemon.pid})`);
}
