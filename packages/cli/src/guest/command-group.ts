/** One command in many sandboxes: a few at a time, with an outcome for each. */
import { AppError, errorCodes, toErrorBody } from "@forkd/contract/wire";
import type { ErrorBody, ExecEvent, ExecResult } from "@forkd/contract";
import { wireOf, type CommandHandle, type Forkd, type SandboxInfo } from "@forkd/sdk";
import type { Cli } from "../cli.ts";
import { exitCodeOf, inCliWords } from "../terminal/exit-code.ts";
import { signalExitCode } from "../terminal/interrupts.ts";
import { remedyOf } from "../terminal/remedies.ts";
import { shortIds } from "../terminal/short-id.ts";
import { commandSettings, type CommandOptions } from "./command-session.ts";
import { PrefixedLines } from "./prefixed-lines.ts";

export type Group = {
  readonly forkd: Forkd;
  readonly sandboxes: readonly SandboxInfo[];
  readonly args: string[];
  readonly options: CommandOptions;
  /** Sandboxes at a time. */
  readonly parallel: number;
};

type Exit = Extract<ExecEvent, { type: "exit" }>;
type Result = Omit<Exit, "type"> & { stdout: string; stderr: string; truncated: boolean };
type Outcome = { id: string; index: number } & (Result | ErrorBody);

/** Output of all commands that --json keeps, and the most and least of one stream of one command. */
const keptBytes = 64 * 1024 * 1024;
const mostBytes = 1024 * 1024;
const leastBytes = 4 * 1024;

/** Resolves to the exit code of the first sandbox whose command failed. */
export async function runInAll(cli: Cli, group: Group): Promise<number> {
  const { sandboxes } = group;
  const running = new Set<CommandHandle>();
  using stopping = stopAll(cli, running);
  const outcomes = new Map<string, Outcome>();
  const names = shortIds(sandboxes.map(({ id }) => id));
  const keep = Math.min(mostBytes, Math.max(leastBytes, keptBytes / (2 * sandboxes.length)));
  const rest = sandboxes.values();
  const lane = async () => {
    for (const { id, index } of rest) {
      const one = {
        id,
        name: names.get(id) ?? id,
        keep,
        running,
        isStopped: () => stopping.by !== undefined,
      };
      outcomes.set(id, { id, index, ...(await runInOne(cli, group, one).catch(failure)) });
    }
  };
  await Promise.all(Array.from({ length: Math.min(group.parallel, sandboxes.length) }, lane));
  const ordered = sandboxes.flatMap(({ id }) => outcomes.get(id) ?? []);
  if (cli.out.json) cli.out.document(ordered);
  else summarise(cli, ordered, names);
  if (stopping.by !== undefined) return signalExitCode(stopping.by);
  return ordered.map(exitCode).find((code) => code !== 0) ?? 0;
}

/** The first signal goes to every command and no more are started, the second kills them, the third exits. */
function stopAll(cli: Cli, running: ReadonlySet<CommandHandle>) {
  let count = 0;
  const state = { by: undefined as Parameters<typeof signalExitCode>[0] | undefined };
  const taken = cli.interrupts.takeOver((name) => {
    count += 1;
    state.by = name;
    if (count > 2) return cli.interrupts.abort(name);
    // A command that has just exited takes no signal.
    for (const handle of running) handle.signal(count === 1 ? name : "SIGKILL").catch(() => undefined);
  });
  return {
    get by() {
      return state.by;
    },
    [Symbol.dispose]: () => taken[Symbol.dispose](),
  };
}

type One = {
  readonly id: string;
  readonly name: string;
  readonly keep: number;
  readonly running: Set<CommandHandle>;
  readonly isStopped: () => boolean;
};

async function runInOne(cli: Cli, { forkd, args, options }: Group, one: One): Promise<Result> {
  if (one.isStopped()) throw new AppError("cancelled", "The command was not started");
  const sandbox = await forkd.sandboxes.get(one.id, { signal: cli.signal });
  const settings = { ...commandSettings(cli, options), signal: cli.signal };
  const handle = await sandbox.commands.start(args, settings);
  one.running.add(handle);
  try {
    if (one.isStopped()) await handle.signal("SIGKILL").catch(() => undefined);
    return cli.out.json ? await collect(handle, one.keep) : await show(cli, handle, one.name);
  } finally {
    one.running.delete(handle);
  }
}

async function collect(handle: CommandHandle, keep: number): Promise<Result> {
  const { exec_id: _, stdout, stderr, truncated, ...exit } = wireOf<ExecResult>(await handle.wait());
  const isCut = truncated || stdout.length > keep || stderr.length > keep;
  return { ...exit, stdout: stdout.slice(0, keep), stderr: stderr.slice(0, keep), truncated: isCut };
}

async function show(cli: Cli, handle: CommandHandle, name: string): Promise<Result> {
  const prefix = cli.out.style("dim", `${name} |`) + " ";
  const lines = {
    stdout: new PrefixedLines(prefix, (text) => cli.out.bytes(text)),
    stderr: new PrefixedLines(prefix, (text) => cli.out.bytes(text, "stderr")),
  };
  let exit: Exit | undefined;
  try {
    for await (const event of handle) {
      if (event.type === "stdout" || event.type === "stderr")
        await lines[event.type].push(Buffer.from(event.data, event.encoding));
      else if (event.type === "exit") exit = wireOf<Exit>(event);
    }
  } finally {
    await lines.stdout.end();
    await lines.stderr.end();
  }
  if (exit === undefined) throw new AppError("internal", "The daemon ended the stream without an exit code");
  const { type: _, ...rest } = exit;
  return { ...rest, stdout: "", stderr: "", truncated: false };
}

function failure(error: unknown): ErrorBody {
  return inCliWords(toErrorBody(error));
}

function exitCode(outcome: Outcome): number {
  if ("code" in outcome) return exitCodeOf(outcome.code);
  return outcome.timed_out && outcome.exit_code === 0 ? errorCodes.deadline_exceeded.exit : outcome.exit_code;
}

/** One line per failure, then the counts. */
function summarise(cli: Cli, outcomes: readonly Outcome[], names: ReadonlyMap<string, string>): void {
  const failed = outcomes.filter((outcome) => exitCode(outcome) !== 0);
  for (const outcome of failed) {
    const what =
      "code" in outcome
        ? outcome.error
        : `exit code ${outcome.exit_code}${outcome.timed_out ? ", timed out" : ""}`;
    cli.out.report(`forkd: ${names.get(outcome.id) ?? outcome.id}: ${what}`);
  }
  const first = failed.find((outcome) => "code" in outcome);
  const remedy = first && "code" in first ? remedyOf(first) : undefined;
  if (remedy !== undefined) cli.out.report(`  ${remedy}`);
  cli.out.note(
    failed.length === 0
      ? `Succeeded in ${outcomes.length} of ${outcomes.length} sandboxes.`
      : `Succeeded in ${outcomes.length - failed.length} of ${outcomes.length} sandboxes, failed in ${failed.length}.`,
  );
}
