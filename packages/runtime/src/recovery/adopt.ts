/**
 * Adopts the sandboxes of an earlier daemon. A sandbox whose machine runs is running again; one without a
 * machine is paused, or dead with the reason if there is nothing to resume.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { AppError, toAppError } from "@forkd/contract";
import { mapPool, removeTree, Scope } from "@forkd/base";
import { AgentClient, endProcess, KernelClient, type Machine } from "@forkd/machine";
import { memoryBytes, readSnapshot, snapshotFile } from "@forkd/store";
import { commandDefaults } from "../guest/command-defaults.ts";
import { correctClock } from "../capture/guest-clock.ts";
import { sandboxHome, type SandboxHome } from "../sandbox/paths.ts";
import { diagnose, diskLimits, groupName, notEnforceable } from "../admission/limits.ts";
import { mergedDiskBytes, ownDiskBytes } from "../admission/disk-usage.ts";
import { claimHome } from "../launch/prepare.ts";
import type { Runtime } from "../runtime.ts";
import { startKernelAgain, type WarmKernel } from "../launch/warm-kernel.ts";
import { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { factsOf, savedDir, timeoutsOf, type SandboxRecord } from "../sandbox/record.ts";
import type { Loss } from "../sandbox/exit-reason.ts";
import { childEnv, type SavedState } from "../sandbox/facts.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import { restoreEnded } from "./ended.ts";
import { isVmm, type LiveMachine, type Survivor, type Survivors } from "./survivors.ts";

const attachedAtOnce = 16;

/**
 * Call it after strays were cleaned up. A sandbox that cannot be adopted is logged and does not affect the
 * others.
 */
export async function adoptSandboxes(runtime: Runtime, survivors: Survivors): Promise<void> {
  const all = [...survivors.all.values()];
  for (const { id } of all) runtime.places.add(id);
  await restoreEnded(runtime);
  const adopted = await mapPool(all, attachedAtOnce, async (survivor) => {
    try {
      return await adopt(runtime, survivor);
    } catch (error) {
      runtime.log.error({ event: "sandbox.restore", outcome: "failed", sandbox: survivor.id, error });
      return undefined;
    }
  });
  const byAge = adopted.filter((sandbox) => sandbox !== undefined);
  byAge.sort((a, b) => a.facts.createdAt - b.facts.createdAt || a.facts.index - b.facts.index);
  for (const sandbox of byAge) runtime.registry.add(sandbox);
  if (all.length > 0) runtime.log.info({ event: "runtime.restore", sandboxes: counts(runtime) });
}

function counts(runtime: Runtime): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { state } of runtime.registry.all()) found[state] = (found[state] ?? 0) + 1;
  return found;
}

async function adopt(runtime: Runtime, survivor: Survivor): Promise<Sandbox> {
  if (survivor.kind === "damaged") return unreadableSandbox(runtime, survivor.id, survivor.problem.message);
  const sandbox = await sandboxOf(runtime, survivor.record);
  if (survivor.kind === "live") await attachMachine(runtime, sandbox, survivor.record, survivor.machine);
  else if (survivor.loss) markLost(runtime, sandbox, explainLoss(runtime, survivor.record, survivor.loss));
  else sandbox.markWithoutMachine(undefined);
  return sandbox;
}

/** The sandbox without its machine. */
async function sandboxOf(runtime: Runtime, record: SandboxRecord): Promise<Sandbox> {
  const home = sandboxHome(runtime.config, record.id);
  const saved = await readSavedState(home, record);
  const sandbox = new Sandbox({
    facts: factsOf(record),
    home,
    homeScope: homeScopeOf(runtime, record.id),
    snapshotTag: record.snapshot_tag,
    saved: saved instanceof AppError ? undefined : saved,
    visited: record.visited,
    ttlSecs: record.ttl_secs,
    timeouts: timeoutsOf(record),
    network: record.network,
    ports: record.ports,
    machines: record.machines,
    lastActive: record.saved?.at_unix ?? record.created_at_unix,
  });
  if (saved instanceof AppError) sandbox.markUnresumable(saved);
  else await removeUnnamed(runtime, home.dir, record);
  return sandbox;
}

/** Returns the error if the saved state cannot be read. */
async function readSavedState(
  home: SandboxHome,
  { id, saved }: SandboxRecord,
): Promise<SavedState | AppError | undefined> {
  if (!saved) return undefined;
  try {
    return { snapshot: await readSnapshot(savedDir(home, saved.name), id), savedAt: saved.at_unix };
  } catch (error) {
    return toAppError(error);
  }
}

/**
 * Removes states and drafts that the record does not name: they are unfinished or outdated. A failure does no
 * harm.
 */
async function removeUnnamed(runtime: Runtime, dir: string, record: SandboxRecord): Promise<void> {
  const kept = new Set(["sandbox.json", record.saved?.name, String(record.machine?.number)]);
  try {
    for (const name of await readdir(dir)) if (!kept.has(name)) await removeTree(join(dir, name));
  } catch (error) {
    runtime.log.warn({ event: "sandbox.restore", outcome: "leftovers", sandbox: record.id, error });
  }
}

function homeScopeOf(runtime: Runtime, id: string): Scope {
  const scope = new Scope();
  claimHome(runtime, id, scope);
  return scope;
}

/** Only its id is known. Its files stay until it is killed, for a person who can repair them. */
function unreadableSandbox(runtime: Runtime, id: string, problem: string): Sandbox {
  runtime.log.error({ event: "sandbox.restore", outcome: "damaged", sandbox: id, problem });
  const sandbox = new Sandbox({
    facts: {
      id,
      identity: { hostname: id, machineId: "", bootId: "" },
      env: {},
      labels: {},
      index: 0,
      createdAt: 0,
      workspace: undefined,
      owner: undefined,
      limits: undefined,
    },
    home: sandboxHome(runtime.config, id),
    homeScope: homeScopeOf(runtime, id),
    snapshotTag: "unknown",
    ttlSecs: undefined,
    machines: 0,
  });
  sandbox.markUnreadable(`its record is damaged: ${problem}. Its saved state is kept until it is killed`);
  return sandbox;
}

/** The control group of a machine stays after its end, and may show why it ended. */
function explainLoss(runtime: Runtime, { id, limits, machine }: SandboxRecord, loss: Loss): Loss {
  const group = machine && runtime.cgroups.adopt(groupName(id, machine.number));
  const reason = diagnose(group, limits)({ exitCode: null, signal: null }) ?? loss.reason;
  return { ...loss, reason };
}

function markLost(runtime: Runtime, sandbox: Sandbox, loss: Loss): void {
  runtime.log.warn({ event: "sandbox.lost", sandbox: sandbox.id, reason: loss.reason.text });
  sandbox.markWithoutMachine(loss);
}

/**
 * Reconnects to a running machine. If that fails the machine is ended, because no other daemon could use it.
 */
async function attachMachine(
  runtime: Runtime,
  sandbox: Sandbox,
  record: SandboxRecord,
  live: LiveMachine,
): Promise<void> {
  const { base, paths } = live;
  try {
    if (!(await runtime.engine.canAttach(paths)))
      throw new AppError("engine_failed", `its sockets were removed from ${paths.socketDir}`);
    const machine = await runtime.engine.attach({
      process: live.process,
      place: { socketDir: paths.socketDir, consolePath: paths.consolePath, logPath: paths.logPath },
      ...mappedBy(runtime, live),
      memoryBytes: memoryBytes(base.manifest),
    });
    const { limits } = sandbox.facts;
    const used =
      limits?.disk_mib === undefined
        ? 0
        : (await ownDiskBytes(runtime, sandbox, base)) - (await mergedDiskBytes(base, machine.disk));
    const disk = diskLimits(limits, used);
    if (disk) await machine.limitDisk?.(disk);
    await removeUnusedDisks(paths.dir, machine);
    const attached = sandboxMachine(runtime, sandbox, live, machine);
    await attached.slot.apply(sandbox.network, limits).catch((error: unknown) => {
      // It reaches nothing until its rules apply. The machine itself is not affected.
      runtime.log.warn({ event: "network.adopt", sandbox: sandbox.id, error });
      attached.slot.applyLater(sandbox.network, limits);
    });
    sandbox.attachMachine(attached, { expiresAt: expiryOf(sandbox, record) });
    runtime.log.info({ event: "sandbox.attached", sandbox: sandbox.id, pid: live.process.pid });
  } catch (error) {
    const text = `it could not be adopted: ${toAppError(error).message}`;
    runtime.log.error({ event: "sandbox.attach", outcome: "failed", sandbox: sandbox.id, error });
    if (isVmm(runtime.config, sandbox.id, live.record)) endProcess(live.process.pid);
    for (const dir of [paths.socketDir, paths.dir]) await removeTree(dir);
    markLost(runtime, sandbox, { reason: { text }, console: "" });
  }
}

/** The file that the machine maps, or the view of the files that it maps. */
function mappedBy(
  { store }: Pick<Runtime, "store">,
  { base, record }: LiveMachine,
): { memoryFile: string; isView: boolean } {
  if (record.view !== undefined) return { memoryFile: store.viewPath(record.view), isView: true };
  const memoryFile = base.manifest.files.memory ? snapshotFile(base, "memory") : store.flatPath(base);
  return { memoryFile, isView: false };
}

/** At most a whole time to live from now, even if the wall clock was ahead when the record was written. */
function expiryOf(sandbox: Sandbox, { expires_at_unix: expiresAt }: SandboxRecord): number | undefined {
  const whole = sandbox.nextExpiry();
  return expiresAt === undefined || whole === undefined ? expiresAt : Math.min(expiresAt, whole);
}

function sandboxMachine(
  runtime: Runtime,
  sandbox: Sandbox,
  { record, base, paths }: LiveMachine,
  machine: Machine,
): SandboxMachine {
  const { limits } = sandbox.facts;
  const scope = new Scope();
  const group = runtime.cgroups.adopt(groupName(sandbox.id, record.number));
  if (group) scope.use(group);
  scope.defer(runtime.images.hold(base.id));
  scope.defer(() => removeTree(paths.dir));
  scope.defer(() => removeTree(paths.socketDir));
  scope.use(machine);
  const agent = scope.use(
    AgentClient.open(machine.agentSocket, {
      atBoundary: false,
      helloTimeoutMs: runtime.config.readyTimeoutMs,
      deadlines: runtime.config.guestDeadlines,
      log: runtime.log,
    }),
  );
  // The machine may have been stopped when the daemon ended.
  void correctClock(agent);
  const numbers = machine.disk.map(({ path }) => Number(/\/disk-(\d+)\.qcow2$/.exec(path)?.[1] ?? 0));
  const slot = runtime.network.slot(groupName(sandbox.id, record.number), machine);
  scope.defer(() => slot[Symbol.dispose]());
  const adopted = new SandboxMachine({
    number: record.number,
    base,
    paths,
    machine,
    agent,
    slot,
    kernels: new Map(),
    image: record.image_stamp === undefined ? undefined : { stamp: record.image_stamp, view: record.view },
    scope,
    readyMs: 0,
    from: "start",
    overlays: Math.max(...numbers) + 1,
    notEnforced: notEnforceable(runtime, limits),
    diagnose: diagnose(group, limits, base.manifest.machine.memory_mib),
  });
  const env = childEnv(base.manifest.env, sandbox.facts, sandbox.network);
  const defaults = commandDefaults(base.manifest);
  for (const { language, argv, version } of base.manifest.kernels) {
    adopted
      .addRestart(language, recoverKernel(agent, { ...defaults, language, argv, version, env }))
      .catch((error: unknown) =>
        runtime.log.warn({ event: "kernel.recover", sandbox: sandbox.id, language, error }),
      );
  }
  return adopted;
}

/** The kernel that runs in the guest, after interrupting an eval for the earlier daemon; or a new one. */
async function recoverKernel(
  agent: AgentClient,
  spec: Omit<WarmKernel, "client" | "restart">,
): Promise<WarmKernel> {
  const { language, version } = spec;
  // recover() ends a kernel that does not answer.
  const client = await KernelClient.recover(agent, language, { version }).catch(() => undefined);
  return client ? { ...spec, client } : startKernelAgain(agent, spec);
}

/** Removes overlays that the earlier daemon made ahead of need or had merged into others. */
async function removeUnusedDisks(dir: string, machine: Machine): Promise<void> {
  const used = new Set(machine.disk.map(({ path }) => path));
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    if (/^disk-\d+\.qcow2$/.test(name) && !used.has(path)) await removeTree(path);
  }
}
