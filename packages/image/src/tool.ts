/** Runs the host programs that images are built with, and translates their failures. */
import { ProgramFailure, runProgram, type ProgramResult } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { throwIfCancelled } from "./context.ts";
import { remedyFor, searchPath } from "./packages.ts";

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
  /** what it reads from stdin; default: nothing */
  input?: AsyncIterable<Uint8Array> | undefined;
};

/** Throws `cancelled`, `host_not_ready` (no such program) or a ToolFailure. */
export async function runTool(
  program: string,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<ProgramResult> {
  const { env, signal } = options;
  throwIfCancelled(signal);
  try {
    return await runProgram(program, args, {
      ...options,
      env: { ...process.env, PATH: searchPath(process.env["PATH"]), LC_ALL: "C.UTF-8", ...env },
    });
  } catch (error) {
    throwIfCancelled(signal);
    if (!(error instanceof ProgramFailure)) throw error;
    if (error.isMissing) throw notInstalled(program, error);
    throw new ToolFailure(program, error.status, `${error.stdout}\n${error.stderr}`, error.exitCode);
  }
}

export function notInstalled(program: string, cause?: Error): AppError {
  return new AppError("host_not_ready", `Cannot run ${program}: it is not installed`, {
    details: { program },
    remedy: remedyFor(program),
    cause,
  });
}
