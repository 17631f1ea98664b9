import { advice, AppError } from "@forkd/contract/wire";
import type { ExecInfo } from "@forkd/contract";
import { wireOf, type CommandHandle, type CommandInfo, type Sandbox } from "@forkd/sdk";
import type { Command } from "commander";
import { wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { followCommand } from "../guest/command-session.ts";
import { firstKept, lastLines } from "../guest/last-lines.ts";
import { examples } from "../options/help.ts";
import { DetachKeys } from "../terminal/detach-keys.ts";
import { signalExitCode } from "../terminal/interrupts.ts";
import { terminalSize } from "../terminal/terminal.ts";
import { commandColumns } from "../views/command-table.ts";

type Options = { tail?: number; stdin: boolean };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .argument("[command-id]", "Number of the command; see `forkd ps ID`", wholeNumber(1))
    .option("-n, --tail <lines>", "Start with the last lines (default: all kept)", wholeNumber(0))
    .option("--no-stdin", "Forward no input")
    .addHelpText(
      "after",
      "\nCtrl-C detaches, and so does Ctrl-P Ctrl-Q from a command with a terminal; the command keeps running.\n" +
        examples("forkd attach 3f2a", "forkd attach 3f2a 616930004", "forkd attach 3f2a --tail 20"),
    )
    .action(toAction(attach));
}

async function attach(
  cli: Cli,
  { tail, stdin }: Options,
  prefix: string,
  wanted: number | undefined,
): Promise<number> {
  const sandbox = await cli.sandbox(prefix);
  const command = await findCommand(cli, sandbox, wanted);
  const written = { stdout: command.stdoutBytes, stderr: command.stderrBytes };
  const from = tail === undefined ? { stdout: 0, stderr: 0 } : firstKept(written);
  const inputLost = new AbortController();
  const detached = new AbortController();
  const handle = await sandbox.commands.attach(command.execId, {
    stdoutOffset: from.stdout,
    stderrOffset: from.stderr,
    signal: AbortSignal.any([cli.signal, inputLost.signal, detached.signal]),
  });
  const tty = command.pty === true;
  const isRunning = command.state === "running";
  const connection = {
    takesInput: stdin && isRunning && (tty ? process.stdin.isTTY : command.stdinOpen === true),
    tty: tty && isRunning,
    inputLost,
    detachKeys: new DetachKeys(() => detached.abort()),
    ...(tail !== undefined && { events: lastLines(handle, { count: tail, written }) }),
  };
  let exitCode = 0;
  using _interrupts = cli.interrupts.takeOver((name) => {
    exitCode = signalExitCode(name);
    detached.abort();
  });
  if (connection.tty) adoptSize(handle);
  try {
    return await followCommand(cli, handle, connection);
  } catch (error) {
    if (!detached.signal.aborted) throw error;
    cli.out.note(`Detached from command ${command.execId}, which keeps running.`);
    return exitCode;
  }
}

/** The command with this number. Without one, the only command that runs. */
async function findCommand(cli: Cli, sandbox: Sandbox, wanted: number | undefined): Promise<CommandInfo> {
  const all = await sandbox.commands.list({ signal: cli.signal });
  const running = all.filter(({ state }) => state === "running");
  const found = wanted === undefined ? running : all.filter(({ execId }) => execId === wanted);
  const [command, another] = found;
  if (command !== undefined && another === undefined) return command;
  if (wanted !== undefined || command === undefined) {
    const what = wanted === undefined ? "no command runs" : `it has no command ${wanted}`;
    throw new AppError("exec_not_found", `Cannot attach to a command of ${sandbox.id}: ${what}`, {
      details: { id: sandbox.id, ...(wanted !== undefined && { exec_id: wanted }) },
      remedy: { action: "list_commands", id: sandbox.id },
    });
  }
  if (!cli.out.json) cli.out.report(cli.out.table(commandColumns, wireOf<ExecInfo[]>(running)).trimEnd());
  const message = `Cannot choose a command of ${sandbox.id}: ${running.length} commands run`;
  throw new AppError("invalid_request", message, {
    details: { id: sandbox.id, matches: running.map(({ execId }) => execId) },
    remedy: advice(`Run \`forkd attach ${sandbox.id} COMMAND-ID\` with one of them.`),
  });
}

/** A command in the background has the size of no window yet. */
function adoptSize(handle: CommandHandle): void {
  if (!process.stdout.isTTY) return;
  const { rows, cols } = terminalSize();
  handle.resize(rows, cols).catch(() => undefined); // the command may have exited
}
