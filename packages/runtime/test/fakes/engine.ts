/**
 * An engine without VMs: real sockets and directories, a scripted guest, and a failure wherever a test wants
 * one.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { appendFile, open, writeFile } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import type {
  AttachSpec,
  BootSpec,
  DiskLayer,
  DiskLimits,
  Engine,
  ExitReason,
  JailFacts,
  Machine,
  PageCapture,
  PausedMachine,
  PreparedMachine,
  ProcessId,
  RestoreSpec,
} from "@forkd/machine";
import { FakeGuest, type GuestScript } from "./guest.ts";

export type Script = GuestScript & {
  /** thrown by prepare() and boot() */
  failPrepare?: string;
  /** prepare() and boot() wait until they are cancelled, like a VMM that does not greet */
  hangPrepare?: boolean;
  /** thrown by start() */
  failStart?: string;
  /** thrown by saveDevices() */
  failSave?: string;
  /** thrown by the step of a capture that has this name */
  fail?: { step: CaptureStep; error: Error };
  /** number of the one page that differs from the memory file; default 3 */
  page?: number;
  /** called before each step of a capture */
  onStep?: (step: CaptureStep) => Promise<void> | void;
  /** device states that saveDevices() writes, one after the other; the last one again and again */
  deviceStates?: string[];
  /** start() waits for it */
  gate?: Promise<void>;
  /** a program that serves the agent's socket in place of the scripted guest */
  agentProgram?: string;
};

/** In the order of a branch. */
export const captureSteps = [
  "prepare",
  "arm",
  "precopy",
  "pause",
  "save",
  "take",
  "freeze",
  "resume",
  "write",
  "apply",
] as const;
export type CaptureStep = (typeof captureSteps)[number];

/** Above the largest pid of Linux: names no process. */
const pageBytes = 4096;
const firstPid = 2 ** 22 + 1;

export class FakeEngine implements Engine {
  readonly name = "fake";
  readonly version = "1.2.3";
  readonly capabilities = { diskLimits: false, memoryViews: false };
  /** in order of asking, without those that failed to prepare */
  readonly machines: FakeMachine[] = [];
  /** what the next machines do, by their number from 0 */
  readonly jail: JailFacts = { variant: "none", netdev: "none", missing: [] };
  script: (nth: number) => Script = () => ({});
  /** calls of prepare() and boot(), failed ones too */
  asked = 0;
  starting = 0;
  mostStarting = 0;

  prepare(spec: RestoreSpec, options: { signal?: AbortSignal }): Promise<FakeMachine> {
    return this.#make(spec, options);
  }

  async boot(spec: BootSpec, options: { signal?: AbortSignal }): Promise<FakeMachine> {
    const machine = await this.#make(spec, options);
    machine.guest.run();
    return machine;
  }

  /** thrown by attach() */
  failAttach: string | undefined;

  /** Machines of this engine that were left, or whose runtime was forgotten. */
  async attach({ process, place }: AttachSpec): Promise<FakeMachine> {
    const before = this.machines.findLast((machine) => machine.process.pid === process.pid);
    if (this.failAttach !== undefined) throw new Error(this.failAttach);
    if (!before || before.hasEnded) throw new Error(`no machine has pid ${process.pid}`);
    before.guest.socket.destroy();
    const path = join(place.socketDir, "again.sock");
    const [near, far] = await this.#connect(path, {});
    const guest = new FakeGuest(far, {});
    const { pid } = process;
    const machine = new FakeMachine(this, {
      near,
      guest,
      agent: undefined,
      script: {},
      pid,
      disk: before.disk,
    });
    guest.run();
    this.machines.push(machine);
    return machine;
  }

  async canAttach({ socketDir }: { socketDir: string }): Promise<boolean> {
    return existsSync(socketDir);
  }

  async #make(spec: BootSpec | RestoreSpec, { signal }: { signal?: AbortSignal }): Promise<FakeMachine> {
    const script = this.script(this.asked++);
    const pid = firstPid + this.asked;
    signal?.throwIfAborted();
    await appendFile(spec.place.logPath, "log of the engine\n");
    await appendFile(spec.place.consolePath, "console of the guest\n");
    if (script.failPrepare !== undefined) throw new Error(script.failPrepare);
    if (script.hangPrepare && signal) {
      await once(signal, "abort");
      throw new Error("killed before it had started");
    }
    const [near, far, agent] = await this.#connect(join(spec.place.socketDir, "agent.sock"), script);
    const disk: DiskLayer[] = [
      ...[...spec.disk.backing].reverse(),
      { path: spec.disk.overlay, format: "qcow2" },
    ];
    const machine = new FakeMachine(this, {
      near,
      guest: new FakeGuest(far, script),
      agent,
      script,
      pid,
      disk,
    });
    this.machines.push(machine);
    return machine;
  }

  async #connect(path: string, script: Script): Promise<[Socket, Socket, ChildProcess | undefined]> {
    const server = createServer();
    server.listen(path);
    await once(server, "listening");
    const accepted = once(server, "connection");
    const agent =
      script.agentProgram === undefined
        ? undefined
        : spawn(script.agentProgram, ["--serve", path], { stdio: "ignore" });
    const other = agent ? undefined : connect(path);
    const [socket] = (await accepted) as [Socket];
    server.close();
    return [socket, other ?? socket, agent];
  }
}

export class FakeMachine implements PreparedMachine, Machine {
  readonly process: ProcessId;
  readonly argv = ["fake"];
  readonly jail = "none" as const;
  readonly network = "none" as const;
  readonly hasSlirp = false;
  readonly agentSocket: Socket;
  readonly exited: Promise<ExitReason>;
  readonly guest: FakeGuest;
  disposals = 0;
  isPaused = false;
  /** steps of captures so far */
  readonly steps: CaptureStep[] = [];
  openCaptures = 0;
  readonly disk: DiskLayer[];
  #overlay: string | undefined;
  readonly #engine: FakeEngine;
  readonly #agent: ChildProcess | undefined;
  readonly #script: Script;
  #exit: (reason: ExitReason) => void = () => undefined;

  constructor(
    engine: FakeEngine,
    parts: {
      near: Socket;
      guest: FakeGuest;
      agent: ChildProcess | undefined;
      script: Script;
      pid: number;
      disk: DiskLayer[];
    },
  ) {
    this.disk = parts.disk;
    this.#engine = engine;
    this.process = { pid: parts.pid, startTime: 1 };
    this.agentSocket = parts.near;
    this.guest = parts.guest;
    this.#agent = parts.agent;
    this.#script = parts.script;
    this.exited = new Promise((resolve) => (this.#exit = resolve));
  }

  hasEnded = false;

  get isEnding(): boolean {
    return this.hasEnded;
  }

  wasLeft = false;
  /** those set last */
  diskLimits: DiskLimits | undefined;

  async limitDisk(limits: DiskLimits): Promise<void> {
    this.diskLimits = limits;
  }

  async leave(): Promise<void> {
    this.wasLeft = true;
  }

  /** The process exits without being asked to. */
  die(text: string): void {
    this.hasEnded = true;
    this.#exit({ text, exitCode: 1, signal: null, log: "last log", console: "last console" });
    this.guest.socket.destroy();
  }

  async start(): Promise<Machine> {
    this.#engine.starting++;
    this.#engine.mostStarting = Math.max(this.#engine.mostStarting, this.#engine.starting);
    try {
      await this.#script.gate;
      if (this.#script.failStart !== undefined) throw new Error(this.#script.failStart);
    } finally {
      this.#engine.starting--;
    }
    if (!this.#agent) this.guest.run();
    return this;
  }

  async #step(step: CaptureStep): Promise<void> {
    this.steps.push(step);
    await this.#script.onStep?.(step);
    if (this.#script.fail?.step === step) throw this.#script.fail.error;
  }

  async pause(): Promise<PausedMachine> {
    await this.#step("pause");
    this.isPaused = true;
    return {
      saveDevices: async (path) => {
        await this.#step("save");
        if (this.#script.failSave !== undefined) throw new Error(this.#script.failSave);
        const states = this.#script.deviceStates;
        await writeFile(path, (states && states.length > 1 ? states.shift() : states?.[0]) ?? "device state");
      },
      freezeDisk: async () => {
        await this.#step("freeze");
        const frozen = [...this.disk];
        if (this.#overlay !== undefined) this.disk.push({ path: this.#overlay, format: "qcow2" });
        this.#overlay = undefined;
        return frozen;
      },
      [Symbol.asyncDispose]: async () => {
        this.isPaused = false;
        await this.#step("resume");
      },
    };
  }

  async prepareFreeze(make: () => Promise<string>): Promise<void> {
    await this.#step("prepare");
    this.#overlay ??= await make();
  }

  async collapseDisk(keep: number): Promise<readonly DiskLayer[]> {
    return this.disk.splice(keep, Math.max(0, this.disk.length - keep - 1));
  }

  async armCapture({ layerPath }: { layerPath: string }): Promise<PageCapture> {
    await this.#step("arm");
    await writeFile(layerPath, "");
    this.openCaptures++;
    const page = this.#script.page ?? 3;
    return {
      expectedPages: 1,
      precopy: async () => {
        await this.#step("precopy");
        return { pages: 1, rounds: 1 };
      },
      take: async () => {
        await this.#step("take");
        return { pages: 1, scanUs: 1, copyUs: 1, copied: 1 };
      },
      release: async () => undefined,
      write: async () => {
        await this.#step("write");
        const file = Buffer.alloc(2 * pageBytes + 16);
        file.fill(7, pageBytes, 2 * pageBytes);
        file.writeBigUInt64LE(BigInt(page), 2 * pageBytes);
        file.writeUInt32LE(1, 2 * pageBytes + 8);
        await writeFile(layerPath, file);
        return { pages: 1, extents: 1, fileBytes: file.length };
      },
      apply: async (path) => {
        await this.#step("apply");
        await using flat = await open(path, "r+");
        await flat.write(Buffer.alloc(pageBytes, 7), 0, pageBytes, page * pageBytes);
      },
      [Symbol.asyncDispose]: async () => {
        this.openCaptures--;
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disposals++;
    this.hasEnded = true;
    this.#exit({ text: "stopped", exitCode: null, signal: "SIGKILL", log: "", console: "" });
    this.agentSocket.destroy();
    this.guest.socket.destroy();
    // It ends when its connection does.
    if (this.#agent && this.#agent.exitCode === null) await once(this.#agent, "exit");
  }
}
