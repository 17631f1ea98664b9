import { setTimeout as delay } from "node:timers/promises";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";

const exitPollMs = 20;
const exitLimitMs = 10_000;

export function define(command: Command, toAction: ToAction): void {
  command.addHelpText("after", examples("forkd down")).action(toAction(down));
}

async function down(cli: Cli): Promise<void> {
  const { findDaemon } = await import("../client.ts");
  const forkd = await findDaemon(cli.signal);
  if (forkd === undefined) {
    if (cli.out.json) cli.out.document({ stopped: 0 });
    return cli.out.note("The daemon is not running.");
  }
  using _progress = cli.progress("Stopping");
  const { pid } = await forkd.call("version", {}, { signal: cli.signal });
  const { stopped } = await forkd.call("shutdown", {}, { signal: cli.signal });
  if (cli.environment.url === undefined) await processEnd(pid, cli.signal);
  if (cli.out.json) return cli.out.document({ stopped });
  cli.out.note(`Stopped ${stopped} ${stopped === 1 ? "sandbox" : "sandboxes"} and the daemon (pid ${pid}).`);
}

/** Resolves when the process is gone, so that the next `up` finds its data directory free. */
async function processEnd(pid: number, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + exitLimitMs;
  // The daemon is no child of this process, so its exit is no event here.
  while (isAlive(pid) && performance.now() < deadline) await delay(exitPollMs, undefined, { signal });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
