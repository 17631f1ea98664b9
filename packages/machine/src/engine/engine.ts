/**
 * One virtual machine behind one interface.
 *
 *   boot()    ─────────────────────────────► Machine ──pause()──► PausedMachine ──dispose──► (runs on)
 *   prepare() ──► PreparedMachine ──start()──┘│
 *   attach()  ──────────────────────────────►┘└──leave()──► (runs on without us; attach() takes it up again)
 *
 * What may be done only while no vCPU runs is a method of PausedMachine, so the order cannot be got wrong. Disposing a
 * machine ends its process and removes what the engine made for it in the work directory.
 */
import type { Socket } from "node:net";
import type { Accelerator } from "@forkd/contract";
import type { ProcessId } from "../host/procfs.ts";

/** What the guest sees. A restored machine must have the same shape as the one that was saved. */
export type MachineShape = {
  vcpus: number;
  memoryMib: number;
  accelerator: Accelerator;
  /** name of the machine type, e.g. microvm */
  machineType: string;
  /** CPU model as given to the engine */
  cpu: string;
  /** the devices in order */
  devices: readonly string[];
};

export type DiskLayer = { path: string; format: "qcow2" | "raw" };

export type DiskSpec = {
  /** private writable overlay; empty at the start of a restored machine */
  overlay: string;
  /** read-only layers below it, nearest first */
  backing: readonly DiskLayer[];
};

/** Where the engine puts the files and sockets of one machine. */
export type MachinePlace = {
  /** short path: holds sockets */
  socketDir: string;
  consolePath: string;
  logPath: string;
};

export type BootSpec = {
  shape: MachineShape;
  place: MachinePlace;
  /** mapped shared: the guest's memory is this file's content */
  memoryFile: string;
  disk: DiskSpec;
  kernel: { path: string; initramfs: string; commandLine: string };
};

export type RestoreSpec = {
  shape: MachineShape;
  place: MachinePlace;
  /** mapped private: read from here until written */
  memoryFile: string;
  disk: DiskSpec;
  deviceState: string;
};

/** A machine that runs already: an earlier process of ours has left it. */
export type AttachSpec = {
  process: ProcessId;
  place: MachinePlace;
  memoryFile: string;
  memoryBytes: number;
};

/** What a guest may do with its disk; what is left out is not limited. */
export type DiskLimits = {
  readBps?: number | undefined;
  writeBps?: number | undefined;
  readIops?: number | undefined;
  writeIops?: number | undefined;
  /** bytes that the machine's own layers may take; a machine that takes more is ended with `reason` */
  growth?: { bytes: number; reason: string } | undefined;
};

export type ExitReason = {
  /** first cause that is known, for a person */
  text: string;
  /** the limit that the engine ended it for, if it did */
  exceeded?: "disk";
  exitCode: number | null;
  signal: string | null;
  /** last lines of the engine's log */
  log: string;
  /** last lines of the guest's console */
  console: string;
};

export interface Machine extends AsyncDisposable {
  readonly process: ProcessId;
  readonly argv: readonly string[];
  /** connected to the agent's port */
  readonly agentSocket: Socket;
  readonly exited: Promise<ExitReason>;
  /** Its process is about to end, or has: `exited` will resolve, if it has not yet. */
  readonly isEnding: boolean;
  /** files that hold the disk, bottom first; the last one is being written */
  readonly disk: readonly DiskLayer[];
  /** As that of a prepared machine; for a machine that another process has limited. */
  limitDisk?(limits: DiskLimits): Promise<void>;
  /** Stops the vCPUs and what the host sends to the agent. Disposing the result starts both again. */
  pause(): Promise<PausedMachine>;
  /** Makes ready to take the pages that differ from the memory file, so that little is left for the pause. */
  armCapture(options: {
    layerPath: string;
    /** into the file at once instead of into memory */
    direct: boolean;
    signal?: AbortSignal | undefined;
  }): Promise<PageCapture>;
  /** Opens the overlay that the guest will write to after the next freeze; `make` creates it and gives its path. */
  prepareFreeze(make: () => Promise<string>): Promise<void>;
  /**
   * While the guest runs, copies into the layer being written what the layers above the lowest `keep` hold. Gives the
   * layers that are no longer used.
   */
  collapseDisk(keep: number): Promise<readonly DiskLayer[]>;
  /** Lets go of it: it runs on, and nothing of it is removed. */
  leave(): Promise<void>;
}

export interface PausedMachine extends AsyncDisposable {
  /** CPU and device state without memory. */
  saveDevices(path: string): Promise<void>;
  /**
   * Ends the layer being written; the guest goes on in the prepared overlay. A layer that nothing was written to goes on
   * itself. Gives the layers that hold the disk as it is now, bottom first; none of them is written any more.
   */
  freezeDisk(): Promise<readonly DiskLayer[]>;
}

/** The pages of a restored machine that differ from the file it was restored from. */
export interface PageCapture extends AsyncDisposable {
  /** as counted while the machine ran */
  readonly expectedPages: number;
  /** While it is paused. May be repeated: the last one counts. */
  take(): Promise<{ pages: number; scanUs: number; copyUs: number }>;
  /** Data and extent table of the layer file; its header is for the store to write. */
  write(): Promise<{ pages: number; extents: number; fileBytes: number }>;
  /** Writes the pages to their places in a flat image. */
  apply(path: string): Promise<void>;
}

/** A VMM process that waits for the state it shall go on from. */
export interface PreparedMachine extends AsyncDisposable {
  readonly process: ProcessId;
  readonly argv: readonly string[];
  readonly agentSocket: Socket;
  readonly exited: Promise<ExitReason>;
  /** Holds from the guest's first instruction on; absent where the engine cannot. */
  limitDisk?(limits: DiskLimits): Promise<void>;
  /** Loads the state and runs. The result owns the process. */
  start(): Promise<Machine>;
}

export type Capabilities = {
  /** machines have limitDisk() */
  diskLimits: boolean;
};

export interface Engine {
  readonly name: string;
  readonly version: string;
  readonly capabilities: Capabilities;
  boot(spec: BootSpec, options: { signal?: AbortSignal }): Promise<Machine>;
  prepare(spec: RestoreSpec, options: { signal?: AbortSignal }): Promise<PreparedMachine>;
  /**
   * Takes up a machine that was left. What its owner had begun with it is undone: it runs, and its disk has no layers but those
   * in use. Throws `engine_failed` if that process is gone or is none of ours; it is never ended here.
   */
  attach(spec: AttachSpec): Promise<Machine>;
}
