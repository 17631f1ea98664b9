/** What operations work on. createRuntime() builds it; functions take the part of it that they use. */
import type { CachedValue, FairSemaphore, Logger } from "@forkd/base";
import type { BlobCache } from "@forkd/archive";
import type { AcceleratorChoice, Cgroups, Engine } from "@forkd/machine";
import type { NetworkLogEntry } from "@forkd/contract";
import type { Store } from "@forkd/store";
import type { Admission } from "./admission/admission.ts";
import type { MemoryEstimates } from "./admission/memory-estimates.ts";
import type { OpenBranches } from "./capture/open-branches.ts";
import type { QuotaSettings, RuntimeConfig } from "./config.ts";
import type { Finding } from "./doctor/finding.ts";
import type { GuestBytes } from "./guest/guest-bytes.ts";
import type { TrustList } from "./hub/trust/trust-list.ts";
import type { ReadyPool } from "./launch/ready-pool.ts";
import type { SentBlobs } from "./hub/sent-blobs.ts";
import type { Network } from "./network/network.ts";
import type { EventBus } from "./observe/events.ts";
import type { RuntimeMetrics } from "./observe/metrics.ts";
import type { Usage } from "./observe/usage.ts";
import type { OpenWork } from "./open-work.ts";
import type { GuestPorts } from "./ports/guest-ports.ts";
import type { EndedSandboxes } from "./sandbox/ended.ts";
import type { Activity } from "./sandbox/timers.ts";
import type { Registry } from "./sandbox/registry.ts";
import type { Host } from "./snapshots/compatibility.ts";
import type { Compaction } from "./snapshots/compaction.ts";
import type { ImageRefs } from "./snapshots/image-refs.ts";

/** Disposing it ends all work and stops the sandboxes, or leaves them running, as `work.onStop` says. */
export type Runtime = AsyncDisposable & {
  readonly config: RuntimeConfig;
  readonly quota: QuotaSettings;
  readonly log: Logger;
  readonly startedAt: number;

  // the host
  readonly engine: Engine;
  readonly accelerator: AcceleratorChoice;
  readonly tscKhz: number;
  /** what a snapshot must match to be restored here */
  readonly host: Host;
  readonly cgroups: Cgroups;
  readonly network: Network;
  /** boots a guest on each accelerator; callers at the same time share one result */
  readonly guestBoots: CachedValue<Finding[]>;

  // snapshots
  readonly store: Store;
  readonly images: ImageRefs;
  readonly branches: OpenBranches;
  readonly compaction: Compaction;
  /** whose signatures a pull asks for */
  readonly trust: TrustList;
  /** compressed parts of snapshots */
  readonly blobs: BlobCache;
  /** where blobs were sent */
  readonly sentBlobs: SentBlobs;

  // sandboxes
  readonly registry: Registry;
  readonly activity: Activity;
  /** connections to ports of guests */
  readonly ports: GuestPorts;
  /** sandboxes that ended, for the next daemon */
  readonly ended: EndedSandboxes;
  /** ids whose directories are in use, registered or not */
  readonly places: Set<string>;
  /** names of workspaces being created */
  readonly newWorkspaces: Set<string>;

  // work and capacity
  readonly work: OpenWork;
  readonly admission: Admission;
  readonly memoryEstimates: MemoryEstimates;
  /** limits how many machines start at the same time, over all calls */
  readonly starts: FairSemaphore;
  /** limits how many ready children are handed out at the same time */
  readonly handOuts: FairSemaphore;
  readonly pool: ReadyPool;
  /** data of guests that is collected for answers, over all calls */
  readonly guestBytes: GuestBytes;

  // what can be seen from outside
  /** called with each denial of a connection, for the audit log */
  onDenied: (sandbox: string, entry: NetworkLogEntry) => void;
  readonly events: EventBus;
  readonly metrics: RuntimeMetrics;
  readonly usage: Usage;
};
