/**
 * Engine for QEMU.
 *
 * A restore loads CPU and device state from descriptor 4 and maps memory privately from the snapshot's file,
 * so nothing is copied. The agent's socket is connected before the state is loaded, so that the guest reads
 * the first frames as soon as it runs.
 */
import { stat } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { AppError, errorMessage } from "@forkd/contract";
import { runProgram, Scope, withDeadline, within } from "@forkd/base";
import { z } from "zod";
import { isAlive, type ProcessId } from "../../host/procfs.ts";
import { vmmDeadlines, type VmmDeadlines } from "../../deadlines.ts";
import { VmmProcess } from "../process.ts";
import type {
  AttachSpec,
  BootSpec,
  Capabilities,
  DiskLayer,
  DiskLimits,
  Engine,
  ExitReason,
  Machine,
  MachinePlace,
  PageCapture,
  PausedMachine,
  PreparedMachine,
  RestoreSpec,
} from "../engine.ts";
import { MemoryCapture } from "../../memory/capture.ts";
import { agentSocket, bootArgs, controlSocket, restoreArgs } from "./args.ts";
import { QemuDisk } from "./disk.ts";
import { QmpClient } from "./qmp.ts";

type Running = {
  process: VmmProcess;
  qmp: QmpClient;
  agentSocket: Socket;
  scope: Scope;
  memory: { path: string; bytes: number };
  disk: QemuDisk;
};

/** The sockets of a process close shortly before its exit is known. */
const exitGraceMs = 200;
/** for `qemu --version` */
const versionMs = 30_000;
const statusSchema = z.looseObject({ status: z.string() });

export class QemuEngine implements Engine {
  readonly name = "qemu";
  readonly version: string;
  readonly capabilities: Capabilities = { diskLimits: true };
  readonly #program: string;
  readonly #deadlines: VmmDeadlines;

  private constructor(program: string, version: string, deadlines: VmmDeadlines) {
    this.#program = program;
    this.version = version;
    this.#deadlines = deadlines;
  }

  /** Asks the program for its version; throws host_not_ready if it cannot run. */
  static async open(program: string, deadlines = vmmDeadlines): Promise<QemuEngine> {
    try {
      const { stdout } = await runProgram(program, ["--version"], { timeoutMs: versionMs });
      const version = /version (\d+\.\d+(?:\.\d+)?)/.exec(stdout)?.[1];
      if (version === undefined) throw new Error(`unexpected answer "${stdout.slice(0, 100)}"`);
      return new QemuEngine(program, version, deadlines);
    } catch (error) {
      const why = errorMessage(error);
      throw new AppError("host_not_ready", `Cannot run ${program}: ${why}`, {
        remedy: { action: "install", packages: ["qemu-system-x86"], setting: "qemu_path" },
        cause: error,
      });
    }
  }

  async boot(spec: BootSpec, options: { signal?: AbortSignal } = {}): Promise<Machine> {
    const running = await this.#spawn(bootArgs(spec), spec, [], options.signal);
    return new QemuMachine(running);
  }

  async prepare(spec: RestoreSpec, options: { signal?: AbortSignal } = {}): Promise<PreparedMachine> {
    const running = await this.#spawn(restoreArgs(spec), spec, [spec.deviceState], options.signal);
    return new QemuPrepared(running);
  }

  async attach({ process: id, place, memoryFile, memoryBytes }: AttachSpec): Promise<Machine> {
    const path = `${place.socketDir}/${controlSocket}`;
    if (!isAlive(id)) throw new AppError("engine_failed", `Process ${id.pid} has ended`);
    const { commandMs } = this.#deadlines;
    const control = await connectSocket(path, commandMs).catch((cause: unknown) => {
      const why = errorMessage(cause);
      throw new AppError("engine_failed", `Cannot reach the VMM with pid ${id.pid}: ${why}`, { cause });
    });
    await using scope = new Scope();
    // A failure here must not kill the process, only close the connection.
    scope.defer(() => void control.destroy());
    const process = VmmProcess.attach(id, control, place);
    const qmp = new QmpClient(control, this.#deadlines);
    const execute = executeIn(process, qmp);
    const take = async (): Promise<QemuDisk> => {
      await orExit(process, qmp.open());
      const disk = await QemuDisk.attach(execute, qmp);
      const { status } = statusSchema.parse(await execute("query-status"));
      // An earlier daemon stopped it for a capture that it did not finish.
      if (status === "paused") await execute("cont");
      else if (status !== "running")
        throw new AppError("engine_failed", `The VMM with pid ${id.pid} is in state "${status}"`);
      return disk;
    };
    const disk = await withDeadline(take(), commandMs, () => {
      const text = `The VMM with pid ${id.pid} did not answer within ${commandMs} ms`;
      return new AppError("engine_failed", text);
    });
    const agent = await connectSocket(`${place.socketDir}/${agentSocket}`, commandMs);
    scope.keep();
    endWhenLate(process, qmp);
    const owned = new Scope();
    owned.use(process);
    owned.defer(() => void agent.destroy());
    const memory = { path: memoryFile, bytes: memoryBytes };
    return new QemuMachine({ process, qmp, agentSocket: agent, scope: owned, memory, disk });
  }

  async canAttach({ socketDir }: Pick<MachinePlace, "socketDir">): Promise<boolean> {
    const found = await Promise.all(
      [controlSocket, agentSocket].map((name) =>
        stat(`${socketDir}/${name}`).then(
          (facts) => facts.isSocket(),
          () => false,
        ),
      ),
    );
    return found.every(Boolean);
  }

  async #spawn(
    args: string[],
    { place, shape, memoryFile, disk }: BootSpec | RestoreSpec,
    files: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<Running> {
    signal?.throwIfAborted();
    await using scope = new Scope();
    const process = scope.use(
      await VmmProcess.start({
        program: this.#program,
        args,
        logPath: place.logPath,
        consolePath: place.consolePath,
        files,
      }),
    );
    const stop = () => process.kill();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const qmp = new QmpClient(process.control, this.#deadlines);
      endWhenLate(process, qmp);
      await orExit(process, qmp.open());
      const path = `${place.socketDir}/${agentSocket}`;
      const socket = await orExit(process, connectSocket(path, this.#deadlines.commandMs));
      scope.defer(() => void socket.destroy());
      signal?.throwIfAborted();
      return {
        process,
        qmp,
        agentSocket: socket,
        scope: scope.keep(),
        memory: { path: memoryFile, bytes: shape.memoryMib * 1024 * 1024 },
        disk: QemuDisk.fresh(disk, executeIn(process, qmp), qmp),
      };
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }
}

type Execute = (command: string, args?: Record<string, unknown>) => Promise<unknown>;

function executeIn(process: VmmProcess, qmp: QmpClient): Execute {
  return (command, args) => orExit(process, qmp.execute(command, args));
}

/** Ends a process that has missed a deadline: nothing else brings its sandbox back to a known state. */
function endWhenLate(process: VmmProcess, qmp: QmpClient): void {
  qmp.onLate((text) => {
    process.setCause(text);
    process.kill();
  });
}

/**
 * Waits for `work`, which fails when the control socket closes, the first sign of an exit. Then waits for the
 * exit, which says why. Not Promise.race() with the exit: that promise would keep every waiter in memory
 * until the exit.
 */
async function orExit<T>(process: VmmProcess, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    const isExplained =
      error instanceof AppError && (error.code !== "engine_failed" || "log" in error.details);
    const known = isExplained ? undefined : await within(process.exited, exitGraceMs);
    const isEnding = !isExplained && process.isEnding;
    const reason = known ?? (isEnding ? await within(process.exited, vmmDeadlines.exitMs) : undefined);
    throw reason ? exitError(process, reason) : error;
  }
}

function exitError(process: VmmProcess, reason: ExitReason): AppError {
  const lastLine = reason.log.split("\n").at(-1) ?? "";
  return new AppError("engine_failed", `QEMU ended: ${reason.text}${lastLine ? `: ${lastLine}` : ""}`, {
    details: { reason: reason.text, log: reason.log, console: reason.console, argv: process.argv },
  });
}

async function connectSocket(path: string, ms: number): Promise<Socket> {
  const socket = connect({ path });
  const connected = new Promise<void>((resolve, reject) => {
    socket.once("connect", resolve);
    socket.once("error", reject);
  });
  try {
    await withDeadline(
      connected,
      ms,
      () => new AppError("engine_failed", `Cannot connect to ${path} in time`),
    );
  } catch (error) {
    socket.destroy();
    throw error;
  }
  // "close" follows an error and is handled. In a pool, the socket has no other "error" listener.
  socket.on("error", () => undefined);
  return socket;
}

/** The common part of a prepared and a running machine: the process and its sockets. */
class QemuProcess implements AsyncDisposable {
  protected readonly running: Running;

  constructor(running: Running) {
    this.running = running;
  }

  get process(): ProcessId {
    return this.running.process.id;
  }
  get argv(): readonly string[] {
    return this.running.process.argv;
  }
  get agentSocket(): Socket {
    return this.running.agentSocket;
  }
  get exited(): Promise<ExitReason> {
    return this.running.process.exited;
  }
  get isEnding(): boolean {
    return this.running.process.isEnding;
  }

  async limitDisk(limits: DiskLimits): Promise<void> {
    const { process, disk } = this.running;
    await disk.limit(limits, (reason) => {
      process.setCause(reason, "disk");
      process.kill();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.running.scope[Symbol.asyncDispose]();
  }
}

class QemuMachine extends QemuProcess implements Machine {
  get disk(): readonly DiskLayer[] {
    return this.running.disk.layers;
  }

  async pause(): Promise<PausedMachine> {
    const { process, qmp, agentSocket, disk } = this.running;
    // QEMU passes input to a stopped guest too, which would change its memory during a capture.
    agentSocket.cork();
    try {
      await orExit(process, qmp.execute("stop"));
    } catch (error) {
      agentSocket.uncork();
      throw error;
    }
    return {
      saveDevices: async (path) => {
        await orExit(process, qmp.execute("xen-save-devices-state", { filename: path, live: false }));
      },
      freezeDisk: () => disk.freeze(),
      [Symbol.asyncDispose]: async () => {
        try {
          await orExit(process, qmp.execute("cont"));
        } finally {
          agentSocket.uncork();
        }
      },
    };
  }

  armCapture(options: {
    layerPath: string;
    direct: boolean;
    signal?: AbortSignal | undefined;
  }): Promise<PageCapture> {
    const { memory } = this.running;
    const { layerPath, direct, signal } = options;
    return MemoryCapture.arm({
      process: this.process,
      memoryFile: memory.path,
      memoryBytes: memory.bytes,
      layerPath,
      direct,
      ...(signal && { signal }),
    });
  }

  prepareFreeze(make: () => Promise<string>): Promise<void> {
    return this.running.disk.prepare(make);
  }

  collapseDisk(keep: number): Promise<readonly DiskLayer[]> {
    return this.running.disk.collapse(keep);
  }

  async leave(): Promise<void> {
    this.running.scope.keep();
    this.running.agentSocket.destroy();
    this.running.process.leave();
  }
}

class QemuPrepared extends QemuProcess implements PreparedMachine {
  async start(): Promise<Machine> {
    const { process, qmp } = this.running;
    const done = qmp.event(
      "MIGRATION",
      (data) => data["status"] === "completed" || data["status"] === "failed",
    );
    done.catch(() => undefined);
    // Sent together, because QEMU answers in order.
    const [, , end] = await orExit(
      process,
      Promise.all([
        qmp.execute("migrate-set-capabilities", { capabilities: [{ capability: "events", state: true }] }),
        qmp.execute("migrate-incoming", { uri: "fd:4" }),
        done,
      ]),
    );
    if (end["status"] === "failed") {
      throw new AppError("engine_failed", "QEMU could not load the device state of the snapshot", {
        details: { argv: process.argv },
      });
    }
    return new QemuMachine(this.running);
  }
}
