/**
 * The one object that operations work on. Disposing it lets go of the machines, or ends
 * them, as `onStop` says; of the sandboxes those stay on disk that can come back.
 */
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { FairSemaphore, type Logger } from "@forkd/base";
import {
  agentProtocolVersion,
  Cgroups,
  cpuModel,
  devices,
  hostCpuIdentity,
  machineType,
  type AcceleratorChoice,
  type Engine,
} from "@forkd/machine";
import { Store, type StoredSnapshot } from "@forkd/store";
import { Activity } from "./sandbox/activity.ts";
import { Admission } from "./admission/admission.ts";
import { OpenBranches } from "./capture/open-branches.ts";
import { cpuName, type Host } from "./snapshots/compatibility.ts";
import type { OnStop, RuntimeConfig } from "./config.ts";
import { acceleratorFindings } from "./doctor/findings.ts";
import { EventBus } from "./observe/events.ts";
import { ImageRefs } from "./snapshots/image-refs.ts";
import { prepareChild, type PreparedChild } from "./launch/launch.ts";
import { consoleGuardMs, cutConsoles } from "./observe/console-size.ts";
import { RuntimeMetrics } from "./observe/metrics.ts";
import { expire } from "./operations/timeouts.ts";
import { MemoryEstimates } from "./admission/memory-estimates.ts";
import { OutputRoom } from "./guest/output-buffer.ts";
import { quotaDefaults, type QuotaSettings } from "./quota-settings.ts";
import { startRetention } from "./snapshots/retention.ts";
import { closeSandboxes } from "./sandbox/shutdown.ts";
import { Registry } from "./sandbox/registry.ts";
import { CachedValue, Usage } from "./observe/usage.ts";
import { VmmPool } from "./launch/pool.ts";

const maxOutputBytes = 128 * 1024 * 1024;

export class Runtime implements AsyncDisposable {
  readonly config: RuntimeConfig;
  readonly log: Logger;
  readonly engine: Engine;
  readonly store: Store;
  readonly accelerator: AcceleratorChoice;
  readonly tscKhz: number;
  readonly registry: Registry;
  readonly pool: VmmPool;
  /** machines being started at the same time, over all calls */
  readonly starts: FairSemaphore;
  readonly branches: OpenBranches;
  readonly images: ImageRefs;
  readonly events = new EventBus();
  readonly metrics = new RuntimeMetrics();
  readonly usage = new Usage(this);
  /** guests started on each accelerator, to see whether they run; those who ask at the same time get the same */
  readonly guestBoots = new CachedValue(() =>
    acceleratorFindings({ config: this.config, places: this.places }, true),
  );
  /** output that is collected for answers, over all calls */
  readonly outputRoom = new OutputRoom(maxOutputBytes);
  /** names of workspaces being made */
  readonly newWorkspaces = new Set<string>();
  readonly startedAt = Date.now();
  readonly #consoleGuard: NodeJS.Timeout;
  readonly quota: QuotaSettings;
  readonly cgroups: Cgroups;
  readonly admission: Admission;
  readonly activity: Activity;
  readonly memoryEstimates = new MemoryEstimates();
  readonly #retention: Disposable;

  /** what becomes of running sandboxes when it is disposed of */
  onStop: OnStop;
  /** callers are being cut off who have not gone by themselves */
  #isCutting = false;

  /** From now on a caller that is gone was cut off: what it began in a guest goes on, if the guest does. */
  detachCallers(): void {
    this.#isCutting = true;
  }

  /** Whether a command goes on in the guest although its caller is gone. */
  get keepsRunningWithoutCaller(): boolean {
    return this.#isCutting && this.onStop === "keep";
  }

  constructor(parts: {
    config: RuntimeConfig;
    log: Logger;
    engine: Engine;
    store: Store;
    accelerator: AcceleratorChoice;
    tscKhz: number;
    /** the one that the store asks */
    images: ImageRefs;
    cgroups?: Cgroups;
  }) {
    this.images = parts.images;
    this.config = parts.config;
    this.onStop = parts.config.onStop;
    this.log = parts.log;
    this.engine = parts.engine;
    this.store = parts.store;
    this.accelerator = parts.accelerator;
    this.tscKhz = parts.tscKhz;
    this.registry = new Registry(parts.log, this.events);
    this.events.onEvent = (event) => this.metrics.seen(event);
    this.store.onFlatBuilt = (seconds) => this.metrics.chainBuildSeconds.observe(seconds);
    this.quota = { ...quotaDefaults, ...parts.config.quota };
    this.cgroups = parts.cgroups ?? Cgroups.none("control groups are not used");
    this.admission = new Admission({
      dataDir: parts.config.dataDir,
      maxSandboxes: parts.config.maxSandboxes,
      settings: this.quota,
      cgroups: this.cgroups,
      sandboxes: () => this.registry.all(),
    });
    this.activity = new Activity((sandbox) => void expire(this, sandbox, "idle"));
    this.registry.onExpiry = (sandbox) => void expire(this, sandbox, "ttl");
    this.registry.onSchedule = (sandbox) => this.activity.watch(sandbox);
    this.#retention = startRetention(this);
    this.pool = new VmmPool(parts.config.poolSize, (snapshot) => this.#prepareAhead(snapshot), parts.log);
    this.starts = new FairSemaphore(parts.config.forkParallelism);
    this.branches = new OpenBranches(parts.config.branchConcurrency);
    this.#consoleGuard = setInterval(() => void cutConsoles(this.registry.all(), parts.log), consoleGuardMs);
    this.#consoleGuard.unref();
  }

  /** What is started ahead of need must fit as well. */
  async #prepareAhead(snapshot: StoredSnapshot): Promise<PreparedChild> {
    const ask = { what: "start a VMM ahead of need", n: 1, memoryMib: 0, diskMib: 0, isSandbox: false };
    using _room = this.admission.admit(ask);
    return await prepareChild(this, snapshot);
  }

  /** ids whose directories are in use, registered or not */
  readonly places = new Set<string>();

  owns(id: string): boolean {
    return this.places.has(id);
  }

  /** A snapshot that is ready to be used. */
  async snapshot(tag: string): Promise<StoredSnapshot> {
    this.branches.refuse(tag);
    return this.store.get(tag);
  }

  get imageDir(): string {
    return join(this.config.dataDir, "images");
  }

  get host(): Host {
    return {
      engineName: this.engine.name,
      engineVersion: this.engine.version,
      accelerator: this.accelerator.accelerator,
      machineType,
      cpu: cpuName(cpuModel(this.accelerator.accelerator), this.accelerator.accelerator, hostCpuIdentity()),
      devices,
      agentProtocol: agentProtocolVersion,
      tscKhz: this.tscKhz,
    };
  }

  /** fires when the runtime closes */
  readonly closing = new AbortController();
  #underWay = new Set<Promise<unknown>>();

  /** Runs an operation that makes machines: it is stopped and waited for when the runtime closes. */
  async whileOpen<T>(signal: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.closing.signal.throwIfAborted();
    // Of its own, so that what listens to it goes with the work.
    const done = work(AbortSignal.any([...(signal ? [signal] : []), this.closing.signal]));
    this.#underWay.add(done);
    try {
      return await done;
    } finally {
      this.#underWay.delete(done);
    }
  }

  /** From now on nothing begins that makes or changes machines; what has begun is stopped and waited for. */
  async endWork(): Promise<void> {
    this.closing.abort(
      new AppError("daemon_stopping", "The daemon is stopping", { remedy: { action: "retry_later" } }),
    );
    await Promise.allSettled(this.#underWay);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#consoleGuard);
    this.#retention[Symbol.dispose]();
    this.activity[Symbol.dispose]();
    await this.endWork();
    await this.pool[Symbol.asyncDispose]();
    const closed = await closeSandboxes(this, this.onStop);
    this.log.info({ event: "runtime.close", ...closed });
    this.cgroups.close();
  }
}
