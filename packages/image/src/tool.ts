/**
 * Runs a host program as the leader of a process group, so that ending it ends all it has started.
 *
 * The promise settles only when every process that holds the program's output is gone: after it, nothing of the
 * program writes to the directory it worked in.
 */
import { spawn } from "node:child_process";
import { asOrdinary } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { throwIfCancelled } from "./context.ts";
import { remedyFor, searchPath } from "./packages.ts";

export type ToolResult = { stdout: string; stderr: string };

/** Thrown when the program ran and failed; `output` is the tail of what it said. */
export class ToolFailure extends Error {
  override readonly name = "ToolFailure";
  readonly output: string;
  /** null: killed by a signal, or it said something that cannot be used */
  readonly exitCode: number | null;

  constructor(program: string, status: string, output: string, exitCode: number | null = null) {
    const tail = output.trim().split("\n").slice(-5).join("\n");
    super(`Cannot run ${program}: ${status}${tail === "" ? "" : `: ${tail}`}`);
    this.output = output;
    this.exitCode = exitCode;
  }
}

export type ToolOptions = {
  cwd?: string | undefined;
  env?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
  /** each line of both outputs as it comes */
  onLine?: ((line: string) => void) | undefined;
};

const keptCharacters = 1 << 20;
const killAfterMs = 3000;

/** Throws `cancelled`, `host_not_ready` (no such program) or a ToolFailure. */
export async function runTool(
  program: string,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<ToolResult> {
  throwIfCancelled(options.signal);
  const child = spawn(program, args, {
    stdio: ["ignore", "pipe", "pipe"],
    cwd: options.cwd,
    env: { ...process.env, PATH: searchPath(process.env["PATH"]), LC_ALL: "C.UTF-8", ...options.env },
    detached: true,
  });
  asOrdinary(child.pid);
  const stdout = collect(child.stdout, options.onLine);
  const stderr = collect(child.stderr, options.onLine);
  let killTimer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    killGroup(child.pid, "SIGTERM");
    killTimer = setTimeout(() => killGroup(child.pid, "SIGKILL"), killAfterMs);
  };
  options.signal?.addEventListener("abort", stop, { once: true });
  try {
    const end = await new Promise<{ code: number | null; signal: string | null }>((resolve, reject) => {
      child.once("error", (error) => reject(startFailure(program, error)));
      child.once("close", (code, signal) => resolve({ code, signal }));
    });
    throwIfCancelled(options.signal);
    if (end.code !== 0) {
      const status = end.code === null ? `killed by ${end.signal}` : `exit code ${end.code}`;
      throw new ToolFailure(program, status, `${stdout()}\n${stderr()}`, end.code);
    }
    return { stdout: stdout(), stderr: stderr() };
  } finally {
    clearTimeout(killTimer);
    options.signal?.removeEventListener("abort", stop);
  }
}

function collect(stream: NodeJS.ReadableStream, onLine: ToolOptions["onLine"]): () => string {
  let text = "";
  let line = "";
  stream.setEncoding("utf8");
  stream.on("data", (chunk: string) => {
    text = (text + chunk).slice(-keptCharacters);
    if (!onLine) return;
    const lines = (line + chunk).split(/[\r\n]+/);
    line = (lines.pop() ?? "").slice(-keptCharacters);
    for (const each of lines) if (each !== "") onLine(each);
  });
  return () => text;
}

function killGroup(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

function startFailure(program: string, error: Error): Error {
  if (!("code" in error && error.code === "ENOENT")) return error;
  return new AppError("host_not_ready", `Cannot run ${program}: it is not installed`, {
    details: { program },
    remedy: remedyFor(program),
    cause: error,
  });
}
