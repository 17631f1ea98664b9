import { createInterface } from "node:readline/promises";
import { setTimeout as delay } from "node:timers/promises";
import type { ShutdownResult } from "@forkd/contract";
import { errorCodes, plural } from "@forkd/contract/wire";
import { Option, type Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { isAlive } from "../daemon/is-alive.ts";
import { examples } from "../options/help.ts";
import { signalExitCode } from "../terminal/interrupts.ts";

const exitPollMs = 20;
const exitLimitMs = 10_000;

type Sandboxes = "keep" | "stop";
type Answer = Sandboxes | "cancel";
type Options = { keep?: boolean; stop?: boolean; force?: boolean };

/** after so many answers that it does not understand, it cancels */
const maxQuestions = 10;

export function define(command: Command, toAction: ToAction): void {
  command
    .addOption(new Option("--keep", "Keep sandboxes running for the next daemon").conflicts("stop"))
    .addOption(new Option("--stop", "Save running workspaces and stop the other sandboxes"))
    .addOption(new Option("--force", "Stop workspaces that cannot be saved").conflicts("keep"))
    .addHelpText(
      "after",
      "\nWithout --keep or --stop it asks on a terminal. Otherwise the setting on_stop decides (default: keep).\n" +
        examples("forkd down", "forkd down --keep"),
    )
    .action(toAction(down));
}

async function down(cli: Cli, options: Options): Promise<number | void> {
  const { findDaemon } = await import("../daemon/client.ts");
  const forkd = await findDaemon(cli.signal);
  if (forkd === undefined) {
    if (cli.out.json) cli.out.document({ stopped: 0, kept: 0 });
    return cli.out.note("The daemon is not running.");
  }
  const { pid, sandboxes: running } = await forkd.status({ signal: cli.signal });
  const sandboxes = choose(options) ?? (await ask(cli, running));
  if (sandboxes === "cancel") {
    cli.out.note("Cancelled. The daemon and its sandboxes keep running.");
    const { received } = cli.interrupts;
    return received === undefined ? errorCodes.cancelled.exit : signalExitCode(received);
  }
  using _progress = cli.progress("Stopping the daemon");
  const result = await forkd.shutdown({ sandboxes, force: options.force, signal: cli.signal });
  const isGone = cli.environment.url !== undefined || (await processEnd(pid, cli.signal));
  if (!isGone) cli.out.report(`forkd: The daemon (pid ${pid}) is still finishing open requests`);
  if (cli.out.json) cli.out.document(result);
  else showResult(cli, result, isGone ? pid : undefined);
  return result.unsaved === undefined ? undefined : errorCodes.workspace_not_saved.exit;
}

function showResult(cli: Cli, result: ShutdownResult, pid: number | undefined): void {
  const { stopped, kept, saved = [], unsaved = [], lost = [] } = result;
  if (kept > 0)
    cli.out.note(`Kept ${plural(kept, "sandbox")}; the next daemon adopts ${kept === 1 ? "it" : "them"}.`);
  if (saved.length > 0)
    cli.out.note(`Saved ${saved.length === 1 ? "workspace" : "workspaces"} ${saved.join(", ")}.`);
  const ended = [
    ...(stopped > 0 ? [plural(stopped, "sandbox")] : []),
    ...(pid === undefined ? [] : [`the daemon (pid ${pid})`]),
  ];
  if (ended.length > 0) cli.out.note(`Stopped ${ended.join(" and ")}.`);
  for (const { name, error } of unsaved)
    cli.out.report(`forkd: Workspace ${name} could not be saved and keeps running: ${error}`);
  for (const { name, error } of lost)
    cli.out.report(`forkd: Workspace ${name} was stopped without being saved: ${error}`);
}

function choose({ keep, stop, force }: Options): Sandboxes | undefined {
  return keep ? "keep" : stop || force ? "stop" : undefined;
}

/** Asks only on a terminal. */
async function ask(cli: Cli, running: number): Promise<Answer | undefined> {
  if (running === 0 || cli.out.json || !process.stdin.isTTY || !process.stderr.isTTY) return undefined;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const closed = new Promise<string>((resolve) => terminal.once("close", () => resolve("cancel")));
  // The terminal is in raw mode: Ctrl-C is a key and not a signal.
  terminal.once("SIGINT", () => {
    cli.interrupts.abort("SIGINT");
    terminal.close();
  });
  try {
    const question = `${plural(running, "sandbox")} running. [k]eep running for the next daemon, [s]top, or [c]ancel? [k] `;
    for (let asked = 0; asked < maxQuestions; asked++) {
      const line = await Promise.race([
        terminal.question(question, { signal: cli.signal }).catch(cancelled),
        closed,
      ]);
      const answer = readAnswer(line);
      if (answer !== undefined) return answer;
    }
    return "cancel";
  } finally {
    terminal.close();
  }
}

/** For Ctrl-C and the end of the input. */
function cancelled(): string {
  return "cancel";
}

/** Enter alone keeps the sandboxes. undefined: not an answer. */
export function readAnswer(line: string): Answer | undefined {
  const word = line.trim().toLowerCase();
  if (word === "") return "keep";
  return (["keep", "stop", "cancel"] as const).find((answer) => answer === word || answer[0] === word);
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
