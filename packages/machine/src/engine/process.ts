/**
 * A VMM process: started in a session of its own with its output in a log file, so it does not depend on the daemon, or found
 * again after the daemon that started it has gone. The reason it ended is set once: the first cause wins.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, openSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import type { Socket } from "node:net";
import { AppError } from "@forkd/contract";
import { asOrdinary, isErrno } from "@forkd/base";
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
    // The text is only ever an explanation of something else that went wrong.
    return "";
  }
}

type End = { exitCode: number | null; signal: string | null };
type Texts = { logPath: string; consolePath: string };

export class VmmProcess implements AsyncDisposable {
  readonly id: ProcessId;
  readonly argv: readonly string[];
  /** connected to its control socket */
  readonly control: Socket;
  readonly exited: Promise<ExitReason>;
  #cause: string | undefined;
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
      const [log, console] = await Promise.all([tailOf(logPath), tailOf(consolePath)]);
      return { ...end, text: this.#cause ?? describeExit(end, console), log, console };
    });
    const ending = () => void (this.#isEnding = true);
    void parts.end.then(ending);
    // That the other side closes it, or resets it, is the same event as the exit.
    this.control.once("end", ending);
    this.control.on("error", ending);
  }

  static async start(
    options: Texts & {
      program: string;
      args: readonly string[];
      /** files handed over as descriptors 4, 5, … */
      files?: readonly string[];
    },
  ): Promise<VmmProcess> {
    const log = openSync(options.logPath, "a", 0o600);
    const fds: number[] = [log];
    try {
      for (const path of options.files ?? []) fds.push(openSync(path, "r"));
      const child = spawn(options.program, options.args, {
        detached: true,
        stdio: ["ignore", log, log, "pipe", ...fds.slice(1)],
      });
      asOrdinary(child.pid);
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
          argv: [options.program, ...options.args],
          // Extra "pipe" descriptors are connected stream sockets; ours of descriptor 3 is the control socket.
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
   * A process that another one of ours started. It is no child of this process, so its end shows in its control socket, which
   * only the kernel closes for it. How it ended is not known then.
   */
  static attach(id: ProcessId, control: Socket, texts: Texts): VmmProcess {
    const end = new Promise<End>((resolve) => {
      control.once("close", () => resolve({ exitCode: null, signal: null }));
    });
    // Between the look and the signal the pid could become another's only if the process ended and was reaped in that moment.
    const kill = () => {
      if (isAlive(id)) endProcess(id.pid);
    };
    return new VmmProcess(
      { id, argv: commandLine(id.pid), control, end, kill, leave: () => undefined },
      texts,
    );
  }

  /** Its exit is known, or will be in a moment. */
  get isEnding(): boolean {
    return this.#isEnding || isEnding(this.id);
  }

  /** Names why the process is about to end, unless a cause is known already. */
  blame(cause: string): void {
    this.#cause ??= cause;
  }

  /** Immediate; the guest gets no chance to object. */
  kill(): void {
    this.#kill();
  }

  /** Lets it run on without us; `exited` need not resolve any more. */
  leave(): void {
    this.#leave();
    this.control.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.blame("stopped by forkd");
    this.kill();
    await this.exited;
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

/** What the guest said last, if it is the cause. */
export function lastWords(console: string): string | undefined {
  const said = /Kernel panic[^\n]*/.exec(console)?.[0] ?? /forkd: boot failed[^\n]*/.exec(console)?.[0];
  return said === undefined ? undefined : `guest: ${said}`;
}

function describeExit(end: End, console: string): string {
  const said = lastWords(console);
  if (said !== undefined) return said;
  if (end.signal !== null) return `VMM killed by ${end.signal}`;
  if (end.exitCode === 0) return "guest powered off or reset";
  return end.exitCode === null ? "VMM ended" : `VMM exited with code ${end.exitCode}`;
}
