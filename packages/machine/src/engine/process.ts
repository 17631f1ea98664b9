/**
 * A VMM process, started or adopted. It is started in its own session with its output in a log file, so it
 * does not depend on the daemon. The reason for its exit is set once: the first cause counts.
 */
import { spawn, type ChildProcess, type StdioOptions } from "node:child_process";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import type { Socket } from "node:net";
import { AppError } from "@forkd/contract";
import { asBackground, asOrdinary, isErrno, withDeadline } from "@forkd/base";
import { vmmDeadlines } from "../deadlines.ts";
import { commandLine, endProcess, identify, isAlive, isEnding, type ProcessId } from "../host/procfs.ts";
import type { ExitReason } from "./engine.ts";

const tailBytes = 4096;

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
    // The text only explains another failure, so it may be missing.
    return "";
  }
}

/** QEMU writes these lines at every start under TCG; they say nothing about an exit. */
const noise = /TCG doesn't support requested feature/;

function withoutNoise(log: string): string {
  return log
    .split("\n")
    .filter((line) => !noise.test(line))
    .join("\n");
}

type End = { exitCode: number | null; signal: string | null };
type Texts = { logPath: string; consolePath: string };

export class VmmProcess implements AsyncDisposable {
  readonly id: ProcessId;
  readonly argv: readonly string[];
  /** connected to its control socket */
  readonly control: Socket;
  readonly exited: Promise<ExitReason>;
  #cause: Pick<ExitReason, "text" | "exceeded"> | undefined;
  #isEnding = false;
  readonly #kill: () => void;
  readonly #leave: () => void;

  private constructor(
    parts: {
      id: ProcessId;
      argv: readonly string[];
      control: Socket;
      end: Promise<End>;
      kill: () => void;
      leave: () => void;
    },
    { logPath, consolePath }: Texts,
  ) {
    this.id = parts.id;
    this.argv = parts.argv;
    this.control = parts.control;
    this.#kill = parts.kill;
    this.#leave = parts.leave;
    this.exited = parts.end.then(async (end): Promise<ExitReason> => {
      const [log, console] = await Promise.all([tailOf(logPath).then(withoutNoise), tailOf(consolePath)]);
      return { ...end, ...(this.#cause ?? { text: describeExit(end, console) }), log, console };
    });
    const ending = () => void (this.#isEnding = true);
    void parts.end.then(ending);
    // A close or reset by the other side means that the process is exiting.
    this.control.once("end", ending);
    this.control.on("error", ending);
  }

  static async start(
    options: Texts & {
      program: string;
      args: readonly string[];
      /** the command line that the process has once it is the VMM; default: the program and its arguments */
      argv?: readonly string[] | undefined;
      /** files passed as descriptors 4, 5, … */
      files?: readonly string[];
      /** yields to other processes until asForeground() */
      isBackground?: boolean | undefined;
    },
  ): Promise<VmmProcess> {
    const log = openSync(options.logPath, "a", 0o600);
    const fds: number[] = [log];
    try {
      for (const path of options.files ?? []) fds.push(openSync(path, "r"));
      const child = spawnPrivately(options.program, options.args, [
        "ignore",
        log,
        log,
        "pipe",
        ...fds.slice(1),
      ]);
      if (options.isBackground) asBackground(child.pid);
      else asOrdinary(child.pid);
      const end = new Promise<End>((resolve) => {
        child.once("exit", (exitCode, signal) => resolve({ exitCode, signal }));
      });
      if (child.pid === undefined) {
        const error = await new Promise<Error>((resolve) => child.once("error", resolve));
        throw new AppError("host_not_ready", `Cannot start ${options.program}: ${error.message}`, {
          remedy: { action: "run_doctor" },
          cause: error,
        });
      }
      const id = identifyOrKill(child, child.pid);
      return new VmmProcess(
        {
          id,
          argv: options.argv ?? [options.program, ...options.args],
          // Extra "pipe" descriptors are connected stream sockets; descriptor 3 is the control socket.
          control: child.stdio[3] as Socket,
          end,
          kill: () => void child.kill("SIGKILL"),
          leave: () => child.unref(),
        },
        options,
      );
    } finally {
      for (const fd of fds) closeSync(fd);
    }
  }

  /**
   * Adopts a process that an earlier daemon started. It is not a child of this process, so its exit is
   * detected when the kernel closes its control socket. Exit code and signal are unknown.
   */
  static attach(id: ProcessId, control: Socket, texts: Texts): VmmProcess {
    const end = new Promise<End>((resolve) => {
      control.once("close", () => resolve({ exitCode: null, signal: null }));
    });
    // The pid could be reused only if the process exited and was reaped between the check and the signal.
    const kill = () => {
      if (isAlive(id)) endProcess(id.pid);
    };
    return new VmmProcess(
      { id, argv: commandLine(id.pid), control, end, kill, leave: () => undefined },
      texts,
    );
  }

  /** True if the process has exited or is about to. */
  get isEnding(): boolean {
    return this.#isEnding || isEnding(this.id);
  }

  /** Sets why the process is about to exit, unless a cause is known already. */
  setCause(text: string, exceeded?: ExitReason["exceeded"]): void {
    this.#cause ??= { text, ...(exceeded && { exceeded }) };
  }

  /** Kills the process at once, without a shutdown of the guest. */
  kill(): void {
    this.#kill();
  }

  /** Disconnects; the process keeps running and `exited` may never resolve. */
  leave(): void {
    this.#leave();
    this.control.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.setCause("stopped by forkd");
    this.kill();
    try {
      await withDeadline(this.exited, vmmDeadlines.exitMs, () => {
        const text = `The VMM with pid ${this.id.pid} did not exit within ${vmmDeadlines.exitMs / 1000} s of SIGKILL`;
        return new AppError("engine_failed", text);
      });
    } finally {
      this.control.destroy();
    }
  }
}

/** Variables that the program loader and QEMU itself read. No others: a guest may take over its VMM. */
const vmmVariables = ["PATH", "LD_LIBRARY_PATH", "QEMU_MODULE_DIR"];

/** The process gets no variables of the daemon but those it needs, and only its user can read its files. */
function spawnPrivately(program: string, args: readonly string[], stdio: StdioOptions): ChildProcess {
  const given = vmmVariables.flatMap((name) => {
    const value = process.env[name];
    return value === undefined ? [] : [[name, value]];
  });
  // spawn() forks before it returns, so the umask of the daemon changes for no other call.
  const before = process.umask(0o077);
  try {
    return spawn(program, args, { detached: true, env: Object.fromEntries(given), stdio });
  } finally {
    process.umask(before);
  }
}

/** When the host runs out of memory, the kernel should kill a guest before the daemon. */
function raiseOomScore(pid: number): void {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, "500");
  } catch (error) {
    if (!isErrno(error, "ENOENT", "ESRCH", "EACCES", "EPERM")) throw error;
  }
}

/** Kills the process if its identity cannot be read, because nothing would own it. */
function identifyOrKill(child: ChildProcess, pid: number): ProcessId {
  try {
    raiseOomScore(pid);
    return identify(pid) ?? { pid, startTime: 0 };
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

/**
 * What the console says about the exit, in words of the host. Everyone who may list sandboxes sees the reason,
 * but the console is only for callers who may run code in the sandbox, so no text of the guest is quoted.
 */
export function lastWords(console: string): string | undefined {
  if (console.includes("Kernel panic")) return "guest: Kernel panic";
  return console.includes("forkd: boot failed") ? "guest: boot failed" : undefined;
}

function describeExit(end: End, console: string): string {
  const said = lastWords(console);
  if (said !== undefined) return said;
  if (end.signal !== null) return `VMM killed by ${end.signal}`;
  if (end.exitCode === 0) return "guest powered off or reset";
  return end.exitCode === null ? "VMM ended" : `VMM exited with code ${end.exitCode}`;
}
