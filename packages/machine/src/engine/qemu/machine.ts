/** A machine behind the interface of the engine: waiting for its state, or running. */
import type { Socket } from "node:net";
import { AppError } from "@forkd/contract";
import type { Scope } from "@forkd/base";
import type { ProcessId } from "../../host/procfs.ts";
import type { JailVariant, NetworkDevice } from "../../jail/facts.ts";
import type { Launcher } from "../../jail/launcher.ts";
import { MemoryCapture } from "../../memory/capture.ts";
import type {
  DiskLayer,
  DiskLimits,
  ExitReason,
  Machine,
  PageCapture,
  PausedMachine,
  PreparedMachine,
} from "../engine.ts";
import type { VmmProcess } from "../process.ts";
import { descriptors, networkDevice } from "./args.ts";
import type { QemuDisk } from "./disk.ts";
import type { QmpClient } from "./qmp.ts";
import { orExit } from "./waits.ts";

export type Running = {
  process: VmmProcess;
  qmp: QmpClient;
  agentSocket: Socket;
  scope: Scope;
  memory: { path: string; isView: boolean; bytes: number };
  disk: QemuDisk;
  launcher: Launcher;
  /** files that it was given to write to */
  given: string[];
  jail: JailVariant;
};

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
  get jail(): JailVariant {
    return this.running.jail;
  }
  get network(): NetworkDevice {
    return networkDevice(this.argv);
  }
  get hasSlirp(): boolean {
    return this.argv.some((argument) => argument.startsWith("user,id="));
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

export class QemuMachine extends QemuProcess implements Machine {
  #capture: MemoryCapture | undefined;

  get disk(): readonly DiskLayer[] {
    return this.running.disk.layers;
  }

  async pause(): Promise<PausedMachine> {
    const { process, qmp, agentSocket } = this.running;
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
        await this.running.launcher.give(path, process.id.pid);
        this.running.given.push(path);
        await orExit(process, qmp.execute("xen-save-devices-state", { filename: path, live: false }));
      },
      freezeDisk: () => this.#freeze(),
      [Symbol.asyncDispose]: async () => {
        const running = orExit(process, qmp.execute("cont"));
        // Not when it runs: what waits for the guest is there at its next instruction.
        agentSocket.uncork();
        await running;
      },
    };
  }

  async armCapture(options: {
    layerPath: string;
    direct: boolean;
    signal?: AbortSignal | undefined;
  }): Promise<PageCapture> {
    const { memory } = this.running;
    const { layerPath, direct, signal } = options;
    // The end of an earlier capture would end the tracking of this one. If that one has failed, nothing is left.
    await this.#capture?.release().catch(() => undefined);
    this.#capture = await MemoryCapture.arm({
      process: this.process,
      memoryFile: memory.path,
      isView: memory.isView,
      memoryBytes: memory.bytes,
      layerPath,
      direct,
      tracker: descriptors.tracker,
      ...(signal && { signal }),
    });
    return this.#capture;
  }

  prepareFreeze(make: () => Promise<string>): Promise<void> {
    const { disk, launcher, process } = this.running;
    return disk.prepare(async () => {
      const path = await make();
      await launcher.give(path, process.id.pid);
      return path;
    });
  }

  /** The VMM may only read a frozen layer, because snapshots share it. */
  async #freeze(): Promise<readonly DiskLayer[]> {
    const { disk, launcher } = this.running;
    const top = disk.layers.at(-1);
    const frozen = await disk.freeze();
    if (top !== undefined && frozen.at(-1)?.path === top.path) await launcher.takeBack(top.path);
    return frozen;
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

export class QemuPrepared extends QemuProcess implements PreparedMachine {
  async start(): Promise<Machine> {
    const { process, qmp } = this.running;
    const done = qmp.event(
      "MIGRATION",
      (data) => data["status"] === "completed" || data["status"] === "failed",
    );
    done.catch(() => undefined);
    // Sent together, because QEMU answers in order.
    const [, , , end] = await orExit(
      process,
      Promise.all([
        qmp.execute("migrate-set-capabilities", { capabilities: [{ capability: "events", state: true }] }),
        // Otherwise QEMU sends announcements of the guest's address, which have no receiver.
        qmp.execute("migrate-set-parameters", { "announce-rounds": 0 }),
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
