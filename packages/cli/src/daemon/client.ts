/** Finds the daemon, or starts it on demand. */
import { AppError } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import type { Cli } from "../cli.ts";

/** Returns the daemon if it answers; undefined if nothing listens. */
export async function findDaemon(signal: AbortSignal): Promise<Forkd | undefined> {
  const forkd = await connect();
  try {
    await forkd.call("health", {}, { signal });
    return forkd;
  } catch (error) {
    if (error instanceof AppError && error.code === "daemon_unreachable") return undefined;
    throw error;
  }
}

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
  await forkd.call("health", {}, { signal: cli.signal });
  return forkd;
}
