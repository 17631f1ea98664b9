import { createInterface } from "node:readline/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Option, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";

const exitPollMs = 20;
const exitLimitMs = 10_000;

type Sandboxes = "keep" | "stop";
type Options = { keep?: boolean; stop?: boolean };

export function define(command: Command, toAction: ToAction): void {
  command
    .addOption(new Option("--keep", "Keep sandboxes running for the next daemon").conflicts("stop"))
    .addOption(new Option("--stop", "Save running workspaces and stop the other sandboxes"))
    .addHelpText(
      "after",
      "\nWithout either option it asks on a terminal, and otherwise stops the sandboxes.\n" +
        examples("forkd down", "forkd down --keep"),
    )
    .action(toAction(down));
}

async function down(cli: Cli, options: Options): Promise<void> {
  const { findDaemon } = await import("../daemon/client.ts");
  const forkd = await findDaemon(cli.signal);
  if (forkd === undefined) {
    if (cli.out.json) cli.out.document({ stopped: 0, kept: 0 });
    return cli.out.note("The daemon is not running.");
  }
  const { pid, sandboxes: running } = await forkd.status({ signal: cli.signal });
  const sandboxes = choose(options) ?? (await ask(cli, running)) ?? "stop";
  using _progress = cli.progress("Stopping the daemon");
  const { stopped, kept } = await forkd.shutdown({ sandboxes, signal: cli.signal });
  const isGone = cli.environment.url !== undefined || (await processEnd(pid, cli.signal));
  if (!isGone) cli.out.report(`forkd: The daemon (pid ${pid}) is still finishing open requests`);
  if (cli.out.json) return cli.out.document({ stopped, kept });
  const ended = [...(kept > 0 ? [] : [many(stopped)]), ...(isGone ? [`the daemon (pid ${pid})`] : [])];
  if (kept > 0) cli.out.note(`Kept ${many(kept)}; the next daemon adopts ${kept === 1 ? "it" : "them"}.`);
  if (ended.length > 0) cli.out.note(`Stopped ${ended.join(" and ")}.`);
}

function choose({ keep, stop }: Options): Sandboxes | undefined {
  return keep ? "keep" : stop ? "stop" : undefined;
}

/** Asks only on a terminal. */
async function ask(cli: Cli, running: number): Promise<Sandboxes | undefined> {
  if (running === 0 || cli.out.json || !process.stdin.isTTY || !process.stderr.isTTY) return undefined;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    const question = `${many(running)} running. [s]top or [k]eep running for the next daemon? [s] `;
    const answer = (await terminal.question(question, { signal: cli.signal })).trim().toLowerCase();
    return answer.startsWith("k") ? "keep" : "stop";
  } finally {
    terminal.close();
  }
}

function many(count: number): string {
  return `${count} ${count === 1 ? "sandbox" : "sandboxes"}`;
}

/** Waits until the process has exited, so that the next `up` can lock the data directory. */
async function processEnd(pid: number, signal: AbortSignal): Promise<boolean> {
  const deadline = performance.now() + exitLimitMs;
  // Polls, because the daemon is not a child of this process.
  while (isAlive(pid)) {
    if (performance.now() >= deadline) return false;
    await delay(exitPollMs, undefined, { signal });
  }
  return true;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
