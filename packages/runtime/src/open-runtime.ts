/** Composition root: settings → Runtime, after the sandboxes of an earlier daemon were adopted or removed. */
import { readFileSync } from "node:fs";
import { mkdir, realpath } from "node:fs/promises";
import { totalmem } from "node:os";
import { join } from "node:path";
import { BlobCache } from "@forkd/archive";
import { AppError } from "@forkd/contract";
import { CachedValue, FairSemaphore, type Logger } from "@forkd/base";
import {
  Cgroups,
  chooseAccelerator,
  hostBootId,
  measureTscKhz,
  QemuEngine,
  type AcceleratorChoice,
  type Engine,
} from "@forkd/machine";
import { maxViewSegments, Store, type StoredSnapshot } from "@forkd/store";
import { Admission } from "./admission/admission.ts";
import { MemoryEstimates } from "./admission/memory-estimates.ts";
import { OpenBranches } from "./capture/open-branches.ts";
import { agentPath, snapshotsDir, type RuntimeConfig } from "./config.ts";
import { acceleratorFindings } from "./doctor/findings.ts";
import { requirePlatform } from "./doctor/platform.ts";
import { probeBoot } from "./doctor/probe.ts";
import { GuestBytes } from "./guest/guest-bytes.ts";
import { TrustList } from "./hub/trust/trust-list.ts";
import { prepareChild } from "./launch/child.ts";
import { PoolPins } from "./launch/pool-pins.ts";
import type { ReadyChild } from "./launch/prepared.ts";
import { makeReady } from "./launch/ready-child.ts";
import { ReadyPool } from "./launch/ready-pool.ts";
import { consoleGuardMs, cutConsoles } from "./observe/console-size.ts";
import { SentBlobs } from "./hub/sent-blobs.ts";
import { Network } from "./network/network.ts";
import { EventBus } from "./observe/events.ts";
import { RuntimeMetrics } from "./observe/metrics.ts";
import { Usage } from "./observe/usage.ts";
import { OpenWork } from "./open-work.ts";
import { expirePort } from "./operations/ports.ts";
import { expire } from "./operations/timeouts.ts";
import { GuestPorts } from "./ports/guest-ports.ts";
import { adoptSandboxes } from "./recovery/adopt.ts";
import { rememberEnded } from "./recovery/ended.ts";
import { refuseMovedData } from "./recovery/moved-data.ts";
import { cleanUpStrayGroups, cleanUpStrays } from "./recovery/strays.ts";
import { sandboxOfGroup } from "./recovery/vmm-command-line.ts";
import { Survivors } from "./recovery/survivors.ts";
import type { Runtime } from "./runtime.ts";
import { EndedSandboxes } from "./sandbox/ended.ts";
import { Activity } from "./sandbox/timers.ts";
import { Registry } from "./sandbox/registry.ts";
import type { Sandbox } from "./sandbox/sandbox.ts";
import { closeSandboxes } from "./sandbox/shutdown.ts";
import { requireCompatible } from "./snapshots/compatibility.ts";
import { Compaction } from "./snapshots/compaction.ts";
import { ImageRefs } from "./snapshots/image-refs.ts";
import { startRetention } from "./snapshots/retention.ts";
import { thisHost } from "./snapshots/this-host.ts";
import { removeAbandonedRuns } from "./verify/runs.ts";

/** Unix socket addresses have 108 bytes; the longest name below the runtime directory takes the rest. */
const maxRuntimeDirLength = 60;
/** for a connection to a guest without its agent; a guest that drops packets is asked over the agent after it */
const directMs = 1000;
/** memory of a ready child before one was measured */
const readyChildMib = 40;
/** A hand-out mostly waits for its guest, so more of them than of starts fit on the cores. */
const handOutsPerStart = 8;
/** between two events about denials of one sandbox */
const deniedEventMs = 1000;

/** A VMM has some hundred mappings beside those of its memory, and a segment in the middle of a file adds two. */
function viewSegments(): number {
  try {
    const allowed = Number(readFileSync("/proc/sys/vm/max_map_count", "latin1"));
    return Math.min(maxViewSegments, Math.max(0, Math.floor(allowed / 2) - 1000));
  } catch {
    return maxViewSegments;
  }
}

export function openStore(
  config: RuntimeConfig,
  images: ImageRefs,
  log: Logger,
  mapped: Survivors["mapped"] = { images: new Map(), views: new Map() },
): Promise<Store> {
  return Store.open(snapshotsDir(config), {
    mappedImages: mapped.images,
    mappedViews: mapped.views,
    maxViewSegments: viewSegments(),
    cacheDir: join(config.dataDir, "cache", "memory"),
    verifiedRecord: { path: join(config.dataDir, "cache", "verified.json"), bootId: hostBootId() },
    cacheLimits: {
      maxBytes: config.memoryCacheMib * 1024 * 1024,
      isUsed: (id) => images.isHeld(id),
    },
    log,
  });
}

/** The caller owns the data directory: no other daemon uses it. */
export async function openRuntime(given: RuntimeConfig, log: Logger): Promise<Runtime> {
  requirePlatform();
  const config = { ...given };
  if (config.runtimeDir.length > maxRuntimeDirLength) {
    throw new AppError(
      "invalid_request",
      `Cannot use runtime directory "${config.runtimeDir}": sockets need a path of at most ${maxRuntimeDirLength} characters`,
      { remedy: { action: "change_setting", setting: "runtime_dir", to: "a shorter path" } },
    );
  }
  for (const dir of [config.dataDir, join(config.dataDir, "sandboxes"), config.runtimeDir]) {
    await mkdir(dir, { recursive: true, mode: 0o700 });
  }
  // Machines are found by the paths that they were given, so those must be the same whichever way we came.
  config.dataDir = await realpath(config.dataDir);
  await refuseMovedData(config);
  const survivors = await Survivors.find(config);
  await cleanUpStrays(config, log, (id) => survivors.claim(id));
  const cgroups = Cgroups.open(config.dataDir, { machinesGroup: config.machinesGroup });
  const images = new ImageRefs();
  const [engine, store, tscKhz] = await Promise.all([
    QemuEngine.open(config.qemuPath, config.vmmDeadlines, config.jail),
    openStore(config, images, log, survivors.mapped),
    measureTscKhz(agentPath(config)),
  ]);
  const accelerator = await chooseAccelerator(config.accelerator, (candidate) =>
    probeBoot({ config, engine, tscKhz, accelerator: candidate, log }),
  );
  log.info({ event: "runtime.open", accelerator, engine: engine.version, tscKhz });
  const trust = await TrustList.open(join(config.dataDir, "trust.json"));
  const network = await Network.open(config, engine.jail, log);
  const pins = await PoolPins.open(join(config.dataDir, "pool.json"), log);
  const parts = { config, log, engine, store, accelerator, tscKhz, images, cgroups, network, pins, trust };
  const runtime = createRuntime(parts);
  await adoptSandboxes(runtime, survivors);
  await removeAbandonedRuns(runtime);
  await cleanUpStrayGroups(cgroups, log, (id) => runtime.places.has(id));
  runtime.pool.start();
  return runtime;
}

type RuntimeParts = {
  config: RuntimeConfig;
  log: Logger;
  engine: Engine;
  store: Store;
  accelerator: AcceleratorChoice;
  tscKhz: number;
  /** the one that the store asks */
  images: ImageRefs;
  cgroups?: Cgroups;
  network?: Network;
  pins?: PoolPins;
  trust?: TrustList;
};

/** Connects the parts. Timers run from here on; disposing the result ends them. */
export function createRuntime({
  cgroups = noCgroups(),
  network = Network.none("the network is not used"),
  pins = PoolPins.none(),
  trust = TrustList.none(),
  ...parts
}: RuntimeParts): Runtime {
  const { config, log, store, accelerator, engine, tscKhz } = parts;
  const { quota } = config;
  const events = new EventBus();
  const metrics = new RuntimeMetrics();
  const registry = new Registry(log, events);
  const places = new Set<string>();
  const sandboxes = () => registry.all();
  const branches = new OpenBranches(config.branchConcurrency, events);
  const work = new OpenWork(config.onStop);
  const admission = new Admission({
    dataDir: config.dataDir,
    maxSandboxes: config.maxSandboxes,
    settings: quota,
    cgroups,
    sandboxes,
  });
  // A sandbox grows, a ready child does not.
  const readyEstimates = new MemoryEstimates();
  const compaction = new Compaction({ ...parts, admission, branches, events, metrics, work });
  const runtime: Runtime = {
    ...parts,
    quota,
    cgroups,
    network,
    startedAt: Date.now(),
    host: thisHost({ engine, accelerator: accelerator.accelerator, tscKhz }),
    guestBoots: new CachedValue(() => acceleratorFindings({ config, places }, true)),
    branches,
    compaction,
    trust,
    blobs: new BlobCache(join(config.dataDir, "cache", "blobs"), {
      maxBytes: config.blobCacheMib * 1024 * 1024,
    }),
    sentBlobs: new SentBlobs(join(config.dataDir, "cache", "sent-blobs.json"), log),
    registry,
    activity: new Activity((sandbox) => void expire(runtime, sandbox, "idle")),
    ports: new GuestPorts(config.maxPortConnections),
    ended: new EndedSandboxes(join(config.dataDir, "ended.json"), log),
    places,
    newWorkspaces: new Set(),
    work,
    admission,
    memoryEstimates: new MemoryEstimates(),
    starts: new FairSemaphore(config.forkParallelism),
    handOuts: new FairSemaphore(config.forkParallelism * handOutsPerStart),
    pool: new ReadyPool({
      budgetMib: Math.floor((totalmem() / 1024 / 1024) * (config.poolMemoryPercent / 100)),
      parallel: Math.max(1, Math.floor(config.forkParallelism / 2)),
      pins,
      make: (snapshot, signal) => prepareAhead(runtime, snapshot, readyEstimates, signal),
      isUsable: ({ paths, machine }) => (machine.isEnding ? Promise.resolve(false) : engine.canAttach(paths)),
      childMib: ({ id }) => readyEstimates.of(id) ?? readyChildMib,
      find: (tag) => store.get(tag),
      onDiscard: (reason, count) => metrics.poolDiscards.add({ reason }, count),
      log,
    }),
    guestBytes: new GuestBytes(),
    onDenied: () => undefined,
    events,
    metrics,
    usage: new Usage({ config, sandboxes }),
    [Symbol.asyncDispose]: () => close(runtime, timers),
  };
  const deniedAt = new WeakMap<Sandbox, number>();
  network.onDenied = (machine, entry) => {
    const sandbox = registry.find(sandboxOfGroup(machine) ?? "");
    if (!sandbox) return;
    runtime.onDenied(sandbox.id, entry);
    // A guest must not push the events of others out of the ring. The log of the sandbox has all of them.
    const now = performance.now();
    if (now - (deniedAt.get(sandbox) ?? -Infinity) < deniedEventMs) return;
    deniedAt.set(sandbox, now);
    events.denied(sandbox.info(), entry);
  };
  admission.background = {
    yield: () => compaction.yield(),
    freeableMib: ({ readyIn }) => runtime.pool.freeableMib(readyIn),
    free: ({ readyIn }) => runtime.pool.giveUp(readyIn),
  };
  events.onEvent = (event) => metrics.seen(event);
  store.onFlatBuilt = (seconds) => metrics.chainBuildSeconds.observe(seconds);
  registry.onEnd = (sandbox) => rememberEnded(runtime, sandbox);
  registry.onEndedRemoved = (id) => runtime.ended.remove(id);
  registry.onExpiry = (sandbox) => void expire(runtime, sandbox, "ttl");
  registry.onSchedule = (sandbox) => {
    runtime.activity.watch(sandbox);
    runtime.ports.schedule(sandbox);
  };
  runtime.ports.direct = async ({ machine, slot }, port) =>
    slot.isUp && slot.device === "tap" ? network.connect(machine.process, port, directMs) : undefined;
  runtime.ports.onExpiry = (id, port) => void expirePort(runtime, id, port);
  const timers = [startRetention(runtime), guardConsoles(runtime)];
  return runtime;
}

function noCgroups(): Cgroups {
  return Cgroups.none("control groups are not used");
}

/** A child that is made ahead of need takes capacity too, as long as no caller needs it. */
async function prepareAhead(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  estimates: MemoryEstimates,
  signal: AbortSignal,
): Promise<ReadyChild> {
  using _capacity = runtime.admission.admit({
    what: "make a child ahead of need",
    n: 1,
    memoryMib: 0,
    expectMib: estimates.of(snapshot.id) ?? readyChildMib,
    diskMib: 0,
    isSandbox: false,
    isBackground: true,
  });
  requireCompatible(snapshot.tag, snapshot.manifest, runtime.host);
  await runtime.store.verify(snapshot, { signal });
  const prepared = await prepareChild(runtime, snapshot, { signal, isBackground: true });
  const child = await makeReady(runtime, prepared, signal);
  void estimates.learn(snapshot.id, child.machine.process.pid);
  return child;
}

function guardConsoles({ registry, log }: Pick<Runtime, "registry" | "log">): Disposable {
  const timer = setInterval(() => void cutConsoles(registry.all(), log), consoleGuardMs);
  timer.unref();
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** In this order: nothing new begins, running work ends, and only then the sandboxes are stopped or left. */
async function close(runtime: Runtime, timers: readonly Disposable[]): Promise<void> {
  for (const timer of timers) timer[Symbol.dispose]();
  runtime.activity[Symbol.dispose]();
  runtime.ports[Symbol.dispose]();
  await runtime.work.end();
  await runtime.pool[Symbol.asyncDispose]();
  const closed = await closeSandboxes(runtime, { onStop: runtime.work.onStop });
  await runtime.network[Symbol.asyncDispose]();
  await runtime.store[Symbol.asyncDispose]();
  runtime.log.info({ event: "runtime.close", ...closed });
  runtime.cgroups.close();
}
