/** Runs a host program to its end; no shell. */
import { spawn } from "node:child_process";
import { asOrdinary } from "./priority.ts";

export type CommandResult = { stdout: string; stderr: string };

/** Thrown (as the error itself) when the program cannot start or exits non-zero. */
export type CommandFailure = Error & { command: string; exitCode: number | null; stderr: string };

const keptBytes = 1 << 20;

export async function runCommand(
  command: string,
  args: readonly string[],
  options: {
    cwd?: string;
    env?: NodeJS.ProcessEnv;
    signal?: AbortSignal;
    /** each line of stdout and stderr as it comes */
    onLine?: (line: string) => void;
  } = {},
): Promise<CommandResult> {
  const child = spawn(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    cwd: options.cwd,
    env: options.env,
    signal: options.signal,
  });
  asOrdinary(child.pid);
  const collect = (stream: NodeJS.ReadableStream): (() => string) => {
    let text = "";
    let line = "";
    stream.setEncoding("utf8");
    stream.on("data", (chunk: string) => {
      text = (text + chunk).slice(-keptBytes);
      if (!options.onLine) return;
      const lines = (line + chunk).split(/[\r\n]+/);
      line = lines.pop() ?? "";
      for (const each of lines) if (each !== "") options.onLine(each);
    });
    stream.on("end", () => {
      if (line !== "") options.onLine?.(line);
    });
    return () => text;
  };
  const stdout = collect(child.stdout);
  const stderr = collect(child.stderr);
  const exitCode = await new Promise<number | null>((resolve, reject) => {
    child.once("error", (error) => reject(failure(command, args, null, "", error)));
    child.once("close", (code) => resolve(code));
  });
  if (exitCode !== 0) throw failure(command, args, exitCode, stderr());
  return { stdout: stdout(), stderr: stderr() };
}

function failure(
  command: string,
  args: readonly string[],
  exitCode: number | null,
  stderr: string,
  cause?: unknown,
): CommandFailure {
  const tail = stderr.trim().split("\n").slice(-5).join("\n");
  const why = cause instanceof Error ? cause.message : `exit code ${exitCode}${tail ? `: ${tail}` : ""}`;
  const error = new Error(`Cannot run ${command} ${args[0] ?? ""}: ${why}`, { cause });
  return Object.assign(error, { command, exitCode, stderr });
}
