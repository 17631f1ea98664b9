/**
 * One virtual machine behind one interface.
 *
 *   boot()    ─────────────────────────────► Machine ──pause()──► PausedMachine ──dispose──► (runs again)
 *   prepare() ──► PreparedMachine ──start()──┘│
 *   attach()  ──────────────────────────────►┘└──leave()──► (keeps running; attach() reconnects)
 *
 * Operations that need stopped vCPUs are methods of PausedMachine, so callers cannot get the order wrong.
 * Disposing a machine ends its process and removes the engine's files in the work directory.
 */
import type { Socket } from "node:net";
import type { Trace } from "@forkd/base";
import type { Accelerator } from "@forkd/contract";
import type { ProcessId } from "../host/procfs.ts";
import type { JailFacts, JailVariant, NetworkDevice } from "../jail/facts.ts";

/** The guest-visible hardware. A restored machine must have the same shape as the saved one. */
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

/**
 * The host's end of the guest's network device. hubport: nothing is connected, and no packet leaves the VMM. tap:
 * a descriptor that the VMM inherits, opened without vnet_hdr, so that any back end can load the saved state.
 * slirp: QEMU's own stack in the VMM's network namespace.
 */
export type Netdev = { kind: "hubport" } | { kind: "tap"; fd: number } | { kind: "slirp" };

/** Where the engine puts the files and sockets of one machine. */
export type MachinePlace = {
  /** a short path, because the length of socket paths is limited */
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
  /** default: hubport */
  netdev?: Netdev;
};

export type RestoreSpec = {
  shape: MachineShape;
  place: MachinePlace;
  /** mapped private: read from here until written */
  memoryFile: string;
  /** The memory file is a view of these files, which are mapped instead. Needs `memoryViews`. */
  viewedFiles?: readonly string[] | undefined;
  disk: DiskSpec;
  deviceState: string;
  /** default: hubport */
  netdev?: Netdev;
  /** The state was saved by a machine with slirp, and `netdev` is another back end. */
  spareSlirp?: boolean;
  /** its process yields to others until asForeground() */
  isBackground?: boolean;
};

/** A running machine that an earlier daemon process started. */
export type AttachSpec = {
  process: ProcessId;
  place: MachinePlace;
  memoryFile: string;
  /** the memory file is a view */
  isView?: boolean;
  memoryBytes: number;
};

/** Disk limits of a guest; absent members mean no limit. */
export type DiskLimits = {
  readBps?: number | undefined;
  writeBps?: number | undefined;
  readIops?: number | undefined;
  writeIops?: number | undefined;
  /** maximum bytes of the machine's own layers; a machine that exceeds them is killed with `reason` */
  growth?: { bytes: number; reason: string } | undefined;
};

export type ExitReason = {
  /** first known cause, for humans */
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
  /** what is around its process */
  readonly jail: JailVariant;
  /** how it is connected; one that an earlier daemon started may differ from new ones */
  readonly network: NetworkDevice;
  /** whether its device state has a section of QEMU's own network stack */
  readonly hasSlirp: boolean;
  readonly argv: readonly string[];
  /** connected to the agent's port */
  readonly agentSocket: Socket;
  readonly exited: Promise<ExitReason>;
  /** True if the process has exited or is about to, so that `exited` has resolved or soon will. */
  readonly isEnding: boolean;
  /** files of the disk, bottom first; the guest writes to the last one */
  readonly disk: readonly DiskLayer[];
  /** As for a prepared machine; used for an adopted machine. */
  limitDisk?(limits: DiskLimits): Promise<void>;
  /** Stops the vCPUs and delays data to the agent. Disposing the result resumes both. */
  pause(): Promise<PausedMachine>;
  /** Prepares to copy the pages that differ from the memory file, to keep the pause short. */
  armCapture(options: {
    layerPath: string;
    /** copy to the file directly instead of to memory */
    direct: boolean;
    signal?: AbortSignal | undefined;
  }): Promise<PageCapture>;
  /** Opens the overlay for writes after the next freeze; `make` creates it and returns its path. */
  prepareFreeze(make: () => Promise<string>): Promise<void>;
  /**
   * While the guest runs, copies the data of all layers above the lowest `keep` to the writable layer.
   * Returns the layers that are no longer used.
   */
  collapseDisk(keep: number): Promise<readonly DiskLayer[]>;
  /** Disconnects: the machine keeps running, and its files stay. */
  leave(): Promise<void>;
}

export interface PausedMachine extends AsyncDisposable {
  /** Saves CPU and device state without memory. */
  saveDevices(path: string): Promise<void>;
  /**
   * Freezes the writable layer; the guest continues in the prepared overlay. An empty layer stays writable
   * instead. Returns the layers of the disk as it is now, bottom first; nothing writes to them any more.
   */
  freezeDisk(): Promise<readonly DiskLayer[]>;
}

/** The pages of a restored machine that differ from the file it was restored from. */
export interface PageCapture extends AsyncDisposable {
  /** counted while the machine was running */
  readonly expectedPages: number;
  /**
   * Copies pages while the machine runs, so that take() copies only those that were written since. Does nothing
   * if the writes of the machine are not tracked.
   */
  precopy(options?: { brief?: boolean }): Promise<{ pages: number; rounds: number }>;
  /** Copies the pages while the machine is paused. May be repeated: the last copy counts. */
  take(): Promise<{ pages: number; scanUs: number; copyUs: number; copied: number }>;
  /**
   * Ends the tracking of writes, while the machine runs again. The other calls, and the next capture of the
   * machine, wait for it.
   */
  release(): Promise<void>;
  /** Writes data and extent table of the layer file; the store writes the header. */
  write(): Promise<{ pages: number; extents: number; fileBytes: number }>;
  /** Writes the pages to a flat image. */
  apply(path: string): Promise<void>;
}

/** A VMM process that waits to load saved state. */
export interface PreparedMachine extends AsyncDisposable {
  readonly process: ProcessId;
  readonly network: NetworkDevice;
  readonly argv: readonly string[];
  readonly agentSocket: Socket;
  readonly exited: Promise<ExitReason>;
  /** Limits apply from the guest's first instruction; absent if the engine does not support them. */
  limitDisk?(limits: DiskLimits): Promise<void>;
  /** Loads the state and runs the machine. The result owns the process. */
  start(): Promise<Machine>;
}

export type Capabilities = {
  /** machines have limitDisk() */
  diskLimits: boolean;
  /** the memory of a machine can be a view of several files (docs/spec/memory-view.md) */
  memoryViews: boolean;
};

export type PrepareOptions = { signal?: AbortSignal | undefined; trace?: Trace | undefined };

export interface Engine {
  readonly name: string;
  readonly version: string;
  readonly capabilities: Capabilities;
  /** what is around every process that it starts */
  readonly jail: JailFacts;
  boot(spec: BootSpec, options: { signal?: AbortSignal }): Promise<Machine>;
  prepare(spec: RestoreSpec, options: PrepareOptions): Promise<PreparedMachine>;
  /**
   * Adopts a running machine. Undoes unfinished work of its earlier owner: resumes it and removes unused disk
   * layers. Throws `engine_failed` if the process has exited or is not ours; never kills it.
   */
  attach(spec: AttachSpec): Promise<Machine>;
  /** Whether attach() could reach a machine at this place: its sockets are there. */
  canAttach(place: Pick<MachinePlace, "socketDir">): Promise<boolean>;
}
