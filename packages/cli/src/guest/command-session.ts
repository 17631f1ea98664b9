/**
 * Connects a command of a guest to this process: its output to stdout and stderr, stdin and signals to it.
 * Shared by `exec`, `run` and `attach`.
 */
import { advice, AppError, errorCodes } from "@forkd/contract/wire";
import { wireOf, type CommandEvent, type CommandHandle, type Sandbox } from "@forkd/sdk";
import type { Cli } from "../cli.ts";
import type { DetachKeys } from "../terminal/detach-keys.ts";
import { openRawTerminal, terminalSize, watchTerminalSize } from "../terminal/terminal.ts";

export type CommandOptions = {
  interactive?: true;
  tty?: true;
  env?: Record<string, string>;
  workdir?: string;
  user?: string;
  timeout?: number;
};

/** Runs the command until it exits. Resolves to its exit code, 128 + n after signal n, or 124 after --timeout. */
export async function runCommand(
  cli: Cli,
  sandbox: Sandbox,
  args: string[],
  options: CommandOptions,
): Promise<number> {
  const takesInput = options.interactive === true || (options.tty === true && process.stdin.isTTY);
  const inputLost = new AbortController();
  const handle = await sandbox.commands.start(args, {
    ...commandSettings(cli, options),
    ...(takesInput && { stdinOpen: true }),
    ...(options.tty && { pty: terminalSize() }),
    signal: AbortSignal.any([cli.signal, inputLost.signal]),
  });
  using _interrupts = passSignals(cli, handle);
  return await followCommand(cli, handle, { takesInput, tty: options.tty === true, inputLost });
}

export type Connection = {
  /** Forward stdin. */
  readonly takesInput: boolean;
  /** The command has a terminal: keys and window size are forwarded. */
  readonly tty: boolean;
  /** Aborts the handle when input was lost. */
  readonly inputLost: AbortController;
  /** What is shown in place of all events of the command. */
  readonly events?: AsyncIterable<CommandEvent>;
  /** Keys that end the connection and not the command. */
  readonly detachKeys?: DetachKeys;
};

/** Connects this process to a command until it exits. Resolves to its exit code. */
export async function followCommand(
  cli: Cli,
  handle: CommandHandle,
  connection: Connection,
): Promise<number> {
  const { takesInput, tty, inputLost, detachKeys } = connection;
  using _resizing = tty
    ? watchTerminalSize(({ rows, cols }) => void handle.resize(rows, cols).catch(ignoreEnd))
    : undefined;
  using _raw = tty && takesInput ? openRawTerminal() : undefined;
  const ended = new AbortController();
  const passed = { handle, ended: ended.signal, isTyped: tty && process.stdin.isTTY, detachKeys };
  if (takesInput) void passInput(passed, (error) => inputLost.abort(error));
  try {
    return await showOutput(cli, connection.events ?? handle);
  } catch (error) {
    throw inputLost.signal.aborted ? inputLost.signal.reason : error;
  } finally {
    ended.abort();
    if (takesInput) process.stdin.pause();
  }
}

/** A shell with a terminal would wait forever: keys cannot be typed on the stdin of this process. */
export function requireTerminal({ interactive, tty }: CommandOptions): void {
  if (!interactive || !tty || process.stdin.isTTY) return;
  throw new AppError("invalid_request", "Cannot use -i with -t: stdin is not a terminal", {
    remedy: advice("Omit -t to forward stdin, or run the command in a terminal."),
  });
}

/** The settings of a command that is not connected to this process. */
export function commandSettings(cli: Cli, options: CommandOptions) {
  const term = options.tty ? { TERM: cli.environment.term } : {};
  return {
    env: { ...term, ...options.env },
    ...(options.workdir !== undefined && { cwd: options.workdir }),
    ...(options.user !== undefined && { user: options.user }),
    ...(options.timeout !== undefined && { timeoutMs: options.timeout * 1000 }),
  };
}

/** Forwards the first signal, kills the command after the second, exits after the third. */
function passSignals(cli: Cli, handle: CommandHandle): Disposable {
  let count = 0;
  return cli.interrupts.takeOver((name) => {
    count += 1;
    if (count > 2) cli.interrupts.abort(name);
    else void handle.signal(count === 1 ? name : "SIGKILL").catch(() => cli.interrupts.abort(name));
  });
}

type Passed = {
  handle: CommandHandle;
  ended: AbortSignal;
  isTyped: boolean;
  detachKeys: DetachKeys | undefined;
};

/** A user can type keys again that a restart lost; other input would have a gap and must fail. */
async function passInput(passed: Passed, lost: (error: AppError) => void): Promise<void> {
  const { handle, ended, isTyped, detachKeys } = passed;
  try {
    for await (const chunk of process.stdin) {
      if (ended.aborted) return;
      const bytes = chunk as Buffer; // stdin has no encoding set
      const sent = handle.write(detachKeys === undefined ? bytes : detachKeys.pass(bytes));
      await (isTyped ? sent.catch(ignoreLoss) : sent);
    }
    await handle.closeStdin();
  } catch (error) {
    if (isLoss(error)) lost(error);
    else ignoreEnd(error);
  }
}

function ignoreLoss(error: unknown): void {
  if (!isLoss(error)) throw error;
}

function isLoss(error: unknown): error is AppError {
  return error instanceof AppError && error.code === "daemon_unreachable";
}

/** A command may close its stdin or exit at any time; the exit event reports it. */
function ignoreEnd(_error: unknown): void {}

async function showOutput(cli: Cli, events: AsyncIterable<CommandEvent>): Promise<number> {
  let exitCode = 1;
  for await (const event of events) {
    if (cli.out.json) await cli.out.event(wireOf(event));
    else await showEvent(cli, event);
    if (event.type === "exit") exitCode = event.timedOut ? errorCodes.deadline_exceeded.exit : event.exitCode;
  }
  return exitCode;
}

async function showEvent(cli: Cli, event: CommandEvent): Promise<void> {
  if (event.type === "stdout" || event.type === "stderr") {
    await cli.out.bytes(Buffer.from(event.data, event.encoding), event.type);
  } else if (event.type === "exit" && event.timedOut) {
    cli.out.report("forkd: The command timed out and was killed");
  }
}
