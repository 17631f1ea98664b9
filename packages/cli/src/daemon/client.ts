/** Finds the daemon, or starts it on demand. */
import type { Forkd } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import type { Cli } from "../cli.ts";
import { checkHealth, findDaemon } from "./health.ts";

export { findDaemon };

/** Connects to the daemon; starts a local one that is not running. */
export async function openDaemon(cli: Cli): Promise<Forkd> {
  if (cli.environment.url !== undefined) return openRemote(cli);
  const running = await findDaemon(cli.signal);
  if (running !== undefined) return running;
  const { startDaemon } = await import("./start.ts");
  const { pid } = await startDaemon(cli);
  cli.out.note(`Started the daemon (pid ${pid}).`);
  return connect();
}

/** Connects to the daemon that FORKD_URL names; never starts it. */
async function openRemote(cli: Cli): Promise<Forkd> {
  const forkd = await connect();
  await checkHealth(forkd, cli.signal);
  return forkd;
}
