/**
 * Runs a host program to its end; no shell.
 *
 * The program leads its own process group, so that cancelling it ends everything it has started. The promise
 * settles only when every process that holds the program's output has exited: after that, nothing of it
 * writes anywhere.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { isErrno } from "./atomic-file.ts";
import { LineSplitter } from "./line-splitter.ts";
import { asOrdinary } from "./priority.ts";

export type ProgramResult = { stdout: string; stderr: string };
type ProgramOptions = {
  cwd?: string | undefined;
  /** the whole environment; default: that of this process */
  env?: NodeJS.ProcessEnv | undefined;
  signal?: AbortSignal | undefined;
  /** cancels the program after this time; default: none */
  timeoutMs?: number | undefined;
  /** each line of stdout and stderr as it arrives */
  onLine?: ((line: string) => void) | undefined;
  /** characters kept of the end of each output */
  keep?: number | undefined;
  /** what it reads from stdin; default: nothing. A failure of it ends the program and is thrown. */
  input?: string | AsyncIterable<Uint8Array> | undefined;
};

const keptCharacters = 1 << 20;
const killAfterMs = 3000;

/** Thrown when the program cannot start, exits non-zero, is killed or is cancelled. */
export class ProgramFailure extends Error {
  override readonly name = "ProgramFailure";
  readonly program: string;
  /** how it ended, such as "exit code 3" */
  readonly status: string;
  /** null: killed by a signal, or not started */
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;

  constructor(
    program: string,
    status: string,
    facts: { exitCode?: number | null; stdout?: string; stderr?: string; cause?: unknown } = {},
  ) {
    const tail = (facts.stderr ?? "").trim().split("\n").slice(-5).join("\n");
    super(`Cannot run ${program}: ${status}${tail === "" ? "" : `: ${tail}`}`, { cause: facts.cause });
    this.program = program;
    this.status = status;
    this.exitCode = facts.exitCode ?? null;
    this.stdout = facts.stdout ?? "";
    this.stderr = facts.stderr ?? "";
  }

  /** There is no such program. */
  get isMissing(): boolean {
    return isErrno(this.cause, "ENOENT");
  }
}

export async function runProgram(
  program: string,
  args: readonly string[],
  options: ProgramOptions = {},
): Promise<ProgramResult> {
  const { signal, timeoutMs } = options;
  if (signal?.aborted) throw cancelled(program, signal);
  const place = { cwd: options.cwd, env: options.env, detached: true };
  const child: ChildProcessByStdio<Writable | null, Readable, Readable> =
    options.input !== undefined
      ? spawn(program, args, { ...place, stdio: ["pipe", "pipe", "pipe"] })
      : spawn(program, args, { ...place, stdio: ["ignore", "pipe", "pipe"] });
  asOrdinary(child.pid);
  const stdout = collect(child.stdout, options);
  const stderr = collect(child.stderr, options);
  let inputFailure: { error: unknown } | undefined;
  let killTimer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    killGroup(child.pid, "SIGTERM");
    killTimer = setTimeout(() => killGroup(child.pid, "SIGKILL"), killAfterMs);
  };
  signal?.addEventListener("abort", stop, { once: true });
  let isLate = false;
  const expire = (): void => {
    isLate = true;
    stop();
  };
  const fed = feed(child.stdin, options.input).catch((error: unknown) => {
    inputFailure = { error };
    stop();
  });
  const deadline = timeoutMs === undefined ? undefined : setTimeout(expire, timeoutMs);
  try {
    const end = await new Promise<{ code: number | null; killer: string | null }>((resolve, reject) => {
      child.once("error", (cause) => reject(new ProgramFailure(program, cause.message, { cause })));
      child.once("close", (code, killer) => resolve({ code, killer }));
    });
    // Its input must not be read any more by then.
    await fed;
    if (signal?.aborted) throw cancelled(program, signal);
    if (inputFailure) throw inputFailure.error;
    if (isLate) throw new ProgramFailure(program, `not finished after ${timeoutMs} ms`);
    const outputs = { stdout: stdout(), stderr: stderr() };
    if (end.code === 0) return outputs;
    const status = end.code === null ? `killed by ${end.killer}` : `exit code ${end.code}`;
    throw new ProgramFailure(program, status, { exitCode: end.code, ...outputs });
  } finally {
    clearTimeout(killTimer);
    clearTimeout(deadline);
    signal?.removeEventListener("abort", stop);
  }
}

/** Writes the input of a program. One that does not read all of it is not a failure of the input. */
async function feed(
  stdin: Writable | null,
  input: string | AsyncIterable<Uint8Array> | undefined,
): Promise<void> {
  if (!stdin || input === undefined) return;
  let inputError: { error: unknown } | undefined;
  const read = async function* (): AsyncGenerator<Uint8Array> {
    try {
      if (typeof input === "string") yield Buffer.from(input);
      else yield* input;
    } catch (error) {
      inputError = { error };
      throw error;
    }
  };
  try {
    await pipeline(read, stdin);
  } catch {
    if (inputError) throw inputError.error;
  }
}

function collect(
  stream: NodeJS.ReadableStream,
  { onLine, keep = keptCharacters }: ProgramOptions,
): () => string {
  let text = "";
  const lines = new LineSplitter({ maxLength: keep, ends: /[\r\n]+/ });
  const report = (line: string): void => {
    if (line !== "") onLine?.(line);
  };
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    text = (text + chunk).slice(-keep);
    if (!onLine) return;
    for (const line of lines.push(chunk)) report(line);
    if (lines.isTooLong) report(lines.takeRest());
  });
  stream.on("end", () => report(lines.takeRest()));
  return () => text;
}

function cancelled(program: string, signal: AbortSignal): ProgramFailure {
  const { reason }: { reason: unknown } = signal;
  return new ProgramFailure(program, reason instanceof Error ? reason.message : String(reason), {
    cause: reason,
  });
}

function killGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if (!isErrno(error, "ESRCH")) throw error;
  }
}
