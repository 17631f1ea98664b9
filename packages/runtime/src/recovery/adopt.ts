/**
 * Sandboxes that outlived the daemon: those whose machines live are taken up again, the others come back as paused ones, or are
 * dead and tell why.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { toAppError, type Language } from "@forkd/contract";
import { mapPool, removeTree, Scope } from "@forkd/base";
import { AgentClient, endProcess, KernelClient, type Machine } from "@forkd/machine";
import { memoryBytes, readSnapshot, snapshotFile } from "@forkd/store";
import { correctClock } from "../capture/guest-clock.ts";
import { sandboxHome } from "../sandbox/paths.ts";
import { diagnose, diskLimits, groupName, notEnforceable } from "../admission/limits.ts";
import { mergedDiskBytes, ownDiskBytes } from "../admission/disk-usage.ts";
import { claimHome } from "../launch/launch.ts";
import type { Runtime } from "../runtime.ts";
import { startKernel, type WarmKernel } from "../launch/warm-kernel.ts";
import { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { factsOf, savedDir, timeoutsOf, type SandboxRecord } from "../sandbox/record.ts";
import { childEnv } from "../sandbox/facts.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import { isVmm, type LiveMachine, type Loss, type Survivor, type Survivors } from "./survivors.ts";

const attachedAtOnce = 16;

/** Strays have been removed before. What goes wrong with one costs that one only, and is told. */
export async function restoreSandboxes(runtime: Runtime, survivors: Survivors): Promise<void> {
  const all = [...survivors.all.values()];
  for (const { id } of all) runtime.places.add(id);
  const restored = await mapPool(all, attachedAtOnce, async (survivor) => {
    try {
      return await restore(runtime, survivor);
    } catch (error) {
      runtime.log.error({ event: "sandbox.restore", outcome: "failed", sandbox: survivor.id, error });
      return undefined;
    }
  });
  const byAge = restored.filter((sandbox) => sandbox !== undefined);
  byAge.sort((a, b) => a.facts.createdAt - b.facts.createdAt || a.facts.index - b.facts.index);
  for (const sandbox of byAge) runtime.registry.add(sandbox);
  if (all.length > 0) runtime.log.info({ event: "runtime.restore", sandboxes: counts(runtime) });
}

function counts(runtime: Runtime): Record<string, number> {
  const found: Record<string, number> = {};
  for (const { state } of runtime.registry.all()) found[state] = (found[state] ?? 0) + 1;
  return found;
}

async function restore(runtime: Runtime, survivor: Survivor): Promise<Sandbox> {
  if (survivor.kind === "damaged") return restoreDamaged(runtime, survivor.id, survivor.problem.message);
  const sandbox = await restoreHome(runtime, survivor.record);
  if (survivor.kind === "live") await takeUp(runtime, sandbox, survivor.record, survivor.machine);
  else if (survivor.lost) lose(runtime, sandbox, explainLoss(runtime, survivor.record, survivor.lost));
  else if (!sandbox.saved && !sandbox.unusable)
    sandbox.note = "its machine was lost before it was suspended; resume starts it anew from its snapshot";
  return sandbox;
}

/** The sandbox without its machine. */
async function restoreHome(runtime: Runtime, record: SandboxRecord): Promise<Sandbox> {
  const home = sandboxHome(runtime.config, record.id);
  const sandbox = new Sandbox({
    facts: factsOf(record),
    home,
    homeScope: homeScopeOf(runtime, record.id),
    snapshotTag: record.snapshot_tag,
    ttlSecs: record.ttl_secs,
    timeouts: timeoutsOf(record),
    machines: record.machines,
  });
  sandbox.lastActive = record.saved?.at_unix ?? record.created_at_unix;
  if (record.saved) {
    try {
      const snapshot = await readSnapshot(savedDir(home, record.saved.name), record.id);
      sandbox.saved = { snapshot, savedAt: record.saved.at_unix };
    } catch (error) {
      sandbox.unusable = toAppError(error);
      sandbox.note = `its saved state cannot be used: ${sandbox.unusable.message}`;
      return sandbox;
    }
  }
  await removeUnnamed(runtime, home.dir, record);
  return sandbox;
}

/** States and drafts that the record does not name were never finished, or are older. Those that stay do no harm. */
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

/** Nothing is known of it but its name; what is on disk stays until it is killed, for whoever can read it. */
function restoreDamaged(runtime: Runtime, id: string, problem: string): Sandbox {
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
  sandbox.condemn(`its record is damaged: ${problem}. Its saved state is kept until it is killed`);
  return sandbox;
}

/** The control group of a machine outlives it, and may know why it ended. */
function explainLoss(runtime: Runtime, { id, limits, machine }: SandboxRecord, loss: Loss): Loss {
  const group = machine && runtime.cgroups.adopt(groupName(id, machine.number));
  const reason = diagnose(group, limits)({ exitCode: null, signal: null }) ?? loss.reason;
  return { ...loss, reason };
}

function lose(runtime: Runtime, sandbox: Sandbox, { reason, console }: Loss): void {
  runtime.log.warn({ event: "sandbox.lost", sandbox: sandbox.id, reason });
  if (sandbox.unusable) return;
  if (sandbox.comesBack) sandbox.noteLoss(reason);
  else sandbox.perish(reason, console);
}

/** A machine that cannot be taken up is ended: nobody else could use it. */
async function takeUp(
  runtime: Runtime,
  sandbox: Sandbox,
  record: SandboxRecord,
  live: LiveMachine,
): Promise<void> {
  const { base, paths } = live;
  try {
    const memoryFile = base.manifest.files.memory
      ? snapshotFile(base, "memory")
      : runtime.store.flatPath(base);
    const machine = await runtime.engine.attach({
      process: live.process,
      place: { socketDir: paths.socketDir, consolePath: paths.consolePath, logPath: paths.logPath },
      memoryFile,
      memoryBytes: memoryBytes(base.manifest),
    });
    const { limits } = sandbox.facts;
    const used =
      limits?.disk_mib === undefined
        ? 0
        : (await ownDiskBytes(runtime, sandbox, base)) - (await mergedDiskBytes(base, machine.disk));
    const disk = diskLimits(limits, used);
    if (disk) await machine.limitDisk?.(disk);
    sandbox.enter(incarnationOf(runtime, sandbox, live, machine), expiryOf(sandbox, record));
    sandbox.lastActive = Date.now() / 1000;
    await removeUnusedDisks(paths.dir, machine);
    runtime.log.info({ event: "sandbox.attached", sandbox: sandbox.id, pid: live.process.pid });
  } catch (error) {
    const reason = `it could not be taken up again: ${toAppError(error).message}`;
    runtime.log.error({ event: "sandbox.attach", outcome: "failed", sandbox: sandbox.id, error });
    if (isVmm(runtime.config, sandbox.id, live.record)) endProcess(live.process.pid);
    for (const dir of [paths.socketDir, paths.dir]) await removeTree(dir);
    lose(runtime, sandbox, { reason, console: "" });
  }
}

/** What is left of its time is never more than all of it, whatever the wall clock was then. */
function expiryOf(sandbox: Sandbox, { expires_at_unix: expiresAt }: SandboxRecord): number | undefined {
  const whole = sandbox.nextExpiry();
  return expiresAt === undefined || whole === undefined ? expiresAt : Math.min(expiresAt, whole);
}

function incarnationOf(
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
      log: runtime.log,
    }),
  );
  // It may have stood still when the daemon ended.
  void correctClock(agent);
  const numbers = machine.disk.map(({ path }) => Number(/\/disk-(\d+)\.qcow2$/.exec(path)?.[1] ?? 0));
  const incarnation = new SandboxMachine({
    number: record.number,
    base,
    paths,
    machine,
    agent,
    kernels: new Map(),
    imageStamp: record.image_stamp,
    scope,
    readyMs: 0,
    pooled: false,
    overlays: Math.max(...numbers) + 1,
    notEnforced: notEnforceable(runtime, limits),
    diagnose: diagnose(group, limits, base.manifest.machine.memory_mib),
  });
  const env = childEnv(base.manifest.env, sandbox.facts);
  for (const { language, argv, version } of base.manifest.kernels) {
    const found = findKernel(agent, { language, argv, version, env });
    incarnation.restarts.set(language, found);
    found
      .then((kernel) => incarnation.addKernel(kernel))
      .catch((error: unknown) =>
        runtime.log.warn({ event: "kernel.recover", sandbox: sandbox.id, language, error }),
      )
      .finally(() => incarnation.restarts.delete(language));
  }
  return incarnation;
}

/** The kernel that runs in the guest, with what it did for a caller of the earlier daemon interrupted; or a new one. */
async function findKernel(
  agent: AgentClient,
  spec: { language: Language; argv: readonly string[]; version: string; env: Record<string, string> },
): Promise<WarmKernel> {
  const { language, argv, version } = spec;
  // One that does not answer has been ended.
  const client = await KernelClient.recover(agent, language).catch(() => undefined);
  return client ? { language, version, argv, client } : startKernel(agent, spec);
}

/** Overlays that were made ahead, or that a collapse has emptied, before anyone could remove them. */
async function removeUnusedDisks(dir: string, machine: Machine): Promise<void> {
  const used = new Set(machine.disk.map(({ path }) => path));
  for (const name of await readdir(dir)) {
    const path = join(dir, name);
    if (/^disk-\d+\.qcow2$/.test(name) && !used.has(path)) await removeTree(path);
  }
}
