/** Options of the calls that make sandboxes. */
import type { NetworkMode } from "@forkd/contract";
import type { CreateOptions } from "./client.ts";

/** What a sandbox may use of the host. */
export type LimitOptions = {
  /** Memory of the machine on the host, in MiB; default: no limit. */
  memoryMib?: number | undefined;
  /** CPU time in percent of one core; default: no limit. */
  cpuPercent?: number | undefined;
  /** Threads of the machine on the host; default: no limit. */
  pids?: number | undefined;
  /** Bytes per second that it may read from disk; default: no limit. */
  ioReadBps?: number | undefined;
  /** Bytes per second that it may write to disk; default: no limit. */
  ioWriteBps?: number | undefined;
  /** Read operations per second; default: no limit. */
  ioReadIops?: number | undefined;
  /** Write operations per second; default: no limit. */
  ioWriteIops?: number | undefined;
  /** Size of its disk beyond its snapshot, in MiB; default: no limit. */
  diskMib?: number | undefined;
  /** Bytes per second on the network in each direction; default: no limit. */
  netBps?: number | undefined;
  /** Bytes on the network over the life of one machine; default: no limit. */
  netBytes?: number | undefined;
  /** Network connections at the same time; default: no limit. */
  netConnections?: number | undefined;
  /** Goes without limits that this host cannot enforce; default: false. */
  bestEffort?: boolean | undefined;
};

/** What happens to a sandbox after some time. */
export type TimeoutOptions = {
  /** Ends the sandbox after this many ms, rounded up to seconds; default: no limit. */
  ttlMs?: number | undefined;
  /** Ends it after this many ms without a call into it, rounded up to seconds; default: no limit. */
  idleTimeoutMs?: number | undefined;
  /** What a timeout does; default: "kill", for a workspace "pause". */
  onTimeout?: "kill" | "pause" | undefined;
  /** Resumes the sandbox when a call needs it while it is paused; default: false. */
  autoResume?: boolean | undefined;
};

/** Network and secrets of a sandbox. */
export type NetworkOptions = {
  /** Where the sandbox may connect to; default: as its snapshot (for a branch: its source), then the settings. */
  network?:
    | {
        /** none, filtered or open; default: as the snapshot or the source, then the settings. */
        mode?: NetworkMode | undefined;
        /** Rules such as "allow api.example.com:443", tried before all others; default: none. */
        rules?: readonly string[] | undefined;
      }
    | undefined;
  /** Names of secrets that it may use; default: none, for a branch those of its source. */
  secrets?: readonly string[] | undefined;
};

/** What one child has in addition to the others. */
export type Variation = {
  /** Variables of this child; default: those of all children. */
  env?: Record<string, string> | undefined;
  /** Any JSON, which the child finds in /run/forkd/values.json; default: none. */
  values?: unknown;
};

/** Options of a new sandbox. */
export type SandboxOptions = CreateOptions &
  TimeoutOptions &
  NetworkOptions & {
    /** Environment of the sandbox; default: that of the snapshot. */
    env?: Record<string, string> | undefined;
    /** Labels of the sandbox; default: none. */
    labels?: Record<string, string> | undefined;
    /** What the sandbox may use of the host; default: the daemon's settings. */
    limits?: LimitOptions | undefined;
  };

/** Options of several new sandboxes, which each of them has. */
export type ForkOptions = SandboxOptions & {
  /** Own environment and values for the children in order, at most one entry per child; default: none. */
  vary?: readonly Variation[] | undefined;
};

/** Which sandboxes to list. */
export type SandboxFilter = {
  /** Only children of the snapshot with this tag; default: all. */
  tag?: string | undefined;
  /** Only sandboxes with all of these labels, `name` or `name=value`; default: all. */
  label?: string | readonly string[] | undefined;
  /** Only sandboxes in this state; default: all. */
  state?: "running" | "paused" | "dead" | undefined;
  /** Only the sandbox of this workspace; default: all. */
  workspace?: string | undefined;
  /** Only sandboxes that the key with this name made; default: all. */
  owner?: string | undefined;
  /** Maximum number of entries; default: all. */
  limit?: number | undefined;
};
