/**
 * Engine for QEMU.
 *
 * A restore loads CPU and device state from descriptor 4 and maps memory privately from the snapshot's file,
 * so nothing is copied. The agent's socket is connected before the state is loaded, so that the guest reads
 * the first frames as soon as it runs.
 */
import { stat } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { dirname } from "node:path";
import { AppError, errorMessage } from "@forkd/contract";
import { isErrno, runProgram, Scope, withDeadline, type Trace } from "@forkd/base";
import { z } from "zod";
import { isAlive } from "../../host/procfs.ts";
import { vmmDeadlines, type VmmDeadlines } from "../../deadlines.ts";
import { VmmProcess } from "../process.ts";
import type {
  AttachSpec,
  BootSpec,
  Capabilities,
  DiskSpec,
  Engine,
  Machine,
  MachinePlace,
  Netdev,
  PreparedMachine,
  PrepareOptions,
  RestoreSpec,
} from "../engine.ts";
import type { JailFacts, JailOptions } from "../../jail/facts.ts";
import { jailOf, Launcher } from "../../jail/launcher.ts";
import { agentSocket, bootArgs, controlSocket, descriptors, opensReadOnly, restoreArgs } from "./args.ts";
import { QemuDisk } from "./disk.ts";
import { QemuMachine, QemuPrepared, type Running } from "./machine.ts";
import { QmpClient } from "./qmp.ts";
import { endWhenLate, executeIn, orExit } from "./waits.ts";

/** for `qemu --version` */
const versionMs = 30_000;
/** beyond the size of the guest's disk: metadata of the overlay, console and device state */
const extraFileBytes = 1 << 30;
const noJail: JailOptions = { mode: "off", uids: { first: 0, count: 1 } };
const statusSchema = z.looseObject({ status: z.string() });

export class QemuEngine implements Engine {
  readonly name = "qemu";
  readonly version: string;
  readonly capabilities: Capabilities;
  readonly #launcher: Launcher;
  readonly #deadlines: VmmDeadlines;

  private constructor(launcher: Launcher, version: string, deadlines: VmmDeadlines) {
    this.#launcher = launcher;
    this.capabilities = { diskLimits: true, memoryViews: launcher.canPreload };
    this.version = version;
    this.#deadlines = deadlines;
  }

  /** Asks the program for its version; throws host_not_ready if it cannot run, or not as `jail` requires. */
  static async open(program: string, deadlines = vmmDeadlines, jail = noJail): Promise<QemuEngine> {
    const version = await QemuEngine.#askVersion(program);
    return new QemuEngine(await Launcher.open(program, jail), version, deadlines);
  }

  static async #askVersion(program: string): Promise<string> {
    try {
      const { stdout } = await runProgram(program, ["--version"], { timeoutMs: versionMs });
      const version = /version (\d+\.\d+(?:\.\d+)?)/.exec(stdout)?.[1];
      if (version === undefined) throw new Error(`unexpected answer "${stdout.slice(0, 100)}"`);
      return version;
    } catch (error) {
      const why = errorMessage(error);
      throw new AppError("host_not_ready", `Cannot run ${program}: ${why}`, {
        remedy: { action: "install", packages: ["qemu-system-x86"], setting: "qemu_path" },
        cause: error,
      });
    }
  }

  get jail(): JailFacts {
    return this.#launcher.facts;
  }

  async boot(spec: BootSpec, options: { signal?: AbortSignal } = {}): Promise<Machine> {
    const { place, memoryFile, disk, kernel } = spec;
    // A parent writes to the files of its snapshot, which are nobody's when it has ended.
    const own = [memoryFile, disk.overlay, place.consolePath];
    const running = await this.#spawn(spec, {
      args: bootArgs(spec),
      own,
      read: [kernel.path, kernel.initramfs],
      inherited: [],
      netdev: { kind: "hubport" },
      signal: options.signal,
    });
    return new QemuMachine(running);
  }

  async prepare(spec: RestoreSpec, { signal, trace }: PrepareOptions = {}): Promise<PreparedMachine> {
    const { place, memoryFile, viewedFiles, disk } = spec;
    const netdev = this.#connection();
    const running = await this.#spawn(spec, {
      args: restoreArgs({ ...spec, netdev }, this.version),
      own: [disk.overlay, place.consolePath],
      read: [memoryFile, ...(viewedFiles ?? [])],
      readOnlyFile: opensReadOnly(this.version) ? undefined : memoryFile,
      memoryView: viewedFiles && memoryFile,
      tracker: descriptors.tracker,
      inherited: [spec.deviceState],
      netdev,
      isBackground: spec.isBackground,
      signal,
      trace,
    });
    return new QemuPrepared(running);
  }

  /** How a restored machine is connected; a parent never is. */
  #connection(): Netdev {
    const { netdev } = this.#launcher.facts;
    if (netdev === "tap") return { kind: "tap", fd: descriptors.tap };
    return { kind: netdev === "slirp" ? "slirp" : "hubport" };
  }

  async attach({ process: id, place, memoryFile, isView, memoryBytes }: AttachSpec): Promise<Machine> {
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
    const memory = { path: memoryFile, isView: isView === true, bytes: memoryBytes };
    const launcher = this.#launcher;
    const parts = { process, qmp, scope: owned, memory, disk, launcher };
    return new QemuMachine({ ...parts, agentSocket: agent, given: [], jail: jailOf(id.pid) });
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

  async #spawn({ place, shape, memoryFile, disk }: BootSpec | RestoreSpec, launch: Launch): Promise<Running> {
    const { signal, trace } = launch;
    signal?.throwIfAborted();
    await using scope = new Scope();
    const launcher = this.#launcher;
    const { socketDir, consolePath, logPath } = place;
    const files = {
      own: launch.own,
      read: [...launch.read, ...disk.backing.map(({ path }) => path)],
      dirs: [...new Set([...launch.own.map(dirname), socketDir])],
    };
    await launcher.admit(files);
    const program = launcher.command({
      ...files,
      args: launch.args,
      listen: [
        [descriptors.controlListener, `${socketDir}/${controlSocket}`],
        [descriptors.agentListener, `${socketDir}/${agentSocket}`],
      ],
      keep: [descriptors.control, ...launch.inherited.map((_, index) => descriptors.deviceState + index)],
      netdev: launch.netdev,
      readOnlyFile: launch.readOnlyFile,
      memoryView: launch.memoryView,
      tracker: launch.tracker,
      kvm: shape.accelerator === "kvm",
      // A parent also makes its memory file.
      maxFileBytes: Math.max(await diskBytes(disk), shape.memoryMib * 1024 * 1024) + extraFileBytes,
    });
    const given = [...launch.own];
    // Runs after the process has ended, which the scope does first.
    if (given.includes(memoryFile)) scope.defer(() => takeBack(launcher, given));
    const process = scope.use(
      await VmmProcess.start({
        ...program,
        argv: [launcher.program, ...launch.args],
        logPath,
        consolePath,
        files: launch.inherited,
        isBackground: launch.isBackground,
      }),
    );
    trace?.mark("spawned");
    const stop = () => process.kill();
    signal?.addEventListener("abort", stop, { once: true });
    try {
      const qmp = new QmpClient(process.control, this.#deadlines);
      endWhenLate(process, qmp);
      await orExit(process, qmp.open());
      trace?.mark("greeted");
      const path = `${place.socketDir}/${agentSocket}`;
      const socket = await orExit(process, connectSocket(path, this.#deadlines.commandMs));
      scope.defer(() => void socket.destroy());
      signal?.throwIfAborted();
      return {
        process,
        qmp,
        agentSocket: socket,
        scope: scope.keep(),
        memory: {
          path: memoryFile,
          isView: launch.memoryView !== undefined,
          bytes: shape.memoryMib * 1024 * 1024,
        },
        disk: QemuDisk.fresh(disk, executeIn(process, qmp), qmp),
        launcher,
        given,
        jail: launcher.facts.variant,
      };
    } finally {
      signal?.removeEventListener("abort", stop);
    }
  }
}

/** What the start of a VMM needs beside its spec. */
type Launch = {
  args: readonly string[];
  /** files that it writes to */
  own: readonly string[];
  /** files that it reads, beside the layers of its disk */
  read: readonly string[];
  readOnlyFile?: string | undefined;
  memoryView?: string | undefined;
  tracker?: number | undefined;
  /** files that it gets as descriptors */
  inherited: readonly string[];
  netdev: Netdev;
  isBackground?: boolean | undefined;
  signal: AbortSignal | undefined;
  trace?: Trace | undefined;
};

/** The files may be gone already with the directory that they were in. */
async function takeBack(launcher: Launcher, paths: readonly string[]): Promise<void> {
  for (const path of paths) {
    await launcher.takeBack(path).catch((error: unknown) => {
      if (!isErrno(error, "ENOENT")) throw error;
    });
  }
}

/** The size of the guest's disk, which is that of the raw image at the bottom. */
async function diskBytes({ backing }: DiskSpec): Promise<number> {
  const bottom = backing.at(-1);
  return bottom === undefined ? 0 : (await stat(bottom.path)).size;
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
