/**
 * A VMM process: started in a session of its own with its output in a log file, so it does not depend on the pipes
 * of the daemon; ended by TERM, then KILL. The reason it ended is set once: the first cause wins.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import type { Socket } from "node:net";
import { AppError } from "@forkd/contract";
import { isErrno } from "@forkd/base";
import { identify, type ProcessId } from "../host/procfs.ts";
import type { ExitReason } from "./engine.ts";

const tailBytes = 4096;
const termGraceMs = 2000;

/** The last lines of a text file; empty if it cannot be read. */
export async function tailOf(path: string, bytes = tailBytes): Promise<string> {
  try {
    await using file = await open(path, "r");
    const { size } = await file.stat();
    const start = Math.max(0, size - bytes);
    const buffer = Buffer.alloc(Math.min(size, bytes));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, start);
    return buffer.subarray(0, bytesRead).toString("utf8").trim();
  } catch {
    // The text is only ever an explanation of something else that went wrong.
    return "";
  }
}

export class VmmProcess implements AsyncDisposable {
  readonly id: ProcessId;
  readonly argv: readonly string[];
  /** our end of the socket that is descriptor 3 of the process */
  readonly control: Socket;
  readonly exited: Promise<ExitReason>;
  #cause: string | undefined;
  #child: ChildProcess;

  private constructor(
    child: ChildProcess,
    id: ProcessId,
    argv: readonly string[],
    exited: Promise<ExitReason>,
  ) {
    this.#child = child;
    this.id = id;
    this.argv = argv;
    // Extra "pipe" descriptors are connected stream sockets.
    this.control = child.stdio[3] as Socket;
    this.exited = exited;
  }

  static async start(options: {
    program: string;
    args: readonly string[];
    logPath: string;
    consolePath: string;
    /** files handed over as descriptors 4, 5, … */
    files?: readonly string[];
  }): Promise<VmmProcess> {
    const log = openSync(options.logPath, "a", 0o600);
    const fds: number[] = [log];
    let process: VmmProcess | undefined;
    try {
      for (const path of options.files ?? []) fds.push(openSync(path, "r"));
      const child = spawn(options.program, options.args, {
        detached: true,
        stdio: ["ignore", log, log, "pipe", ...fds.slice(1)],
      });
      const exit = new Promise<{ exitCode: number | null; signal: string | null }>((resolve) => {
        child.once("exit", (exitCode, signal) => resolve({ exitCode, signal }));
      });
      if (child.pid === undefined) {
        const error = await new Promise<Error>((resolve) => child.once("error", resolve));
        throw new AppError(
          "host_not_ready",
          `Cannot start ${options.program}: ${error.message}. Run forkd doctor`,
          {
            cause: error,
          },
        );
      }
      const id = identifyOrKill(child, child.pid);
      const exited = exit.then(async (end): Promise<ExitReason> => {
        const [log, console] = await Promise.all([tailOf(options.logPath), tailOf(options.consolePath)]);
        return {
          ...end,
          text:
            process === undefined
              ? describeExit(end, console)
              : (process.#cause ?? describeExit(end, console)),
          log,
          console,
        };
      });
      process = new VmmProcess(child, id, [options.program, ...options.args], exited);
      // A reset of the control socket is the same event as the exit.
      process.control.on("error", () => undefined);
      return process;
    } finally {
      for (const fd of fds) closeSync(fd);
    }
  }

  /** Names why the process is about to end, unless a cause is known already. */
  blame(cause: string): void {
    this.#cause ??= cause;
  }

  /** Immediate; the guest gets no chance to object. */
  kill(): void {
    this.#child.kill("SIGKILL");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.blame("stopped by forkd");
    this.kill();
    await this.exited;
    this.control.destroy();
  }

  /** Lets the process finish by itself for a moment, then kills it. */
  async terminate(): Promise<void> {
    this.blame("stopped by forkd");
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.kill(), termGraceMs);
    await this.exited;
    clearTimeout(timer);
    this.control.destroy();
  }
}

/** When the host runs out of memory a guest is to go before the daemon that looks after all of them. */
function preferAsVictim(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, "500");
  } catch (error) {
    if (!isErrno(error, "ENOENT", "ESRCH", "EACCES", "EPERM")) throw error;
  }
}

/** Nobody would own a process whose identity cannot be read. */
function identifyOrKill(child: ChildProcess, pid: number): ProcessId {
  try {
    preferAsVictim(pid);
    return identify(pid) ?? { pid, startTime: 0 };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

function describeExit(end: { exitCode: number | null; signal: string | null }, console: string): string {
  const panic = /Kernel panic[^\n]*/.exec(console)?.[0];
  if (panic) return `guest: ${panic}`;
  const boot = /forkd: boot failed[^\n]*/.exec(console)?.[0];
  if (boot) return `guest: ${boot}`;
  if (end.signal !== null) return `VMM killed by ${end.signal}`;
  if (end.exitCode === 0) return "guest powered off or reset";
  return `VMM exited with code ${end.exitCode}`;
}
