/**
 * One machine from one snapshot, in two steps so that the first can be done ahead of need:
 *
 *   prepareMachine()  directories, private disk, a VMM process that waits        (no state loaded)
 *   startMachine()    load state, run, after-fork step in agent and kernels      → SandboxMachine
 *
 * Each step owns what it made in a Scope; whatever fails, nothing of the machine remains. prepareChild() and startChild() do
 * the same for a sandbox that is new.
 */
import { randomBytes } from "node:crypto";
import { copyFile, link, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { AppError, type AskedLimits } from "@forkd/contract";
import { isErrno, removeTree, Scope, withDeadline } from "@forkd/base";
import {
  AgentClient,
  createOverlay,
  shapeOf,
  writeFile as writeGuestFile,
  type DiskLayer,
  type PreparedMachine,
} from "@forkd/machine";
import { manifestName, snapshotDisks, snapshotFile, stampOf, type StoredSnapshot } from "@forkd/store";
import {
  guestIdentity,
  newSandboxId,
  sandboxHome,
  sandboxPaths,
  type GuestIdentity,
  type SandboxHome,
  type SandboxPaths,
} from "../sandbox/paths.ts";
import { diagnose, holdToLimits, makeGroup, notEnforceable } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";
import { childEnv, type SandboxFacts, type SandboxTimeouts } from "../sandbox/facts.ts";
import { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { recordOf, type MachineFacts } from "../sandbox/record.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import { wallClock } from "../capture/wall-clock.ts";
import { attachKernel } from "./warm-kernel.ts";

export type PreparedIncarnation = {
  id: string;
  number: number;
  snapshot: StoredSnapshot;
  paths: SandboxPaths;
  machine: PreparedMachine;
  /** stamp of the flat image that it maps, if it maps one */
  imageStamp: string | undefined;
  scope: Scope;
};

export type PreparedChild = PreparedIncarnation & { home: SandboxHome; homeScope: Scope };

export type ChildRequest = {
  index: number;
  env: Record<string, string>;
  values: unknown;
  labels: Record<string, string>;
  ttlSecs: number | undefined;
  workspace?: string | undefined;
  owner?: string | undefined;
  limits?: AskedLimits | undefined;
  timeouts?: SandboxTimeouts | undefined;
  /** when the caller asked, for ready_ms */
  askedAt: number;
  pooled: boolean;
};

/** Makes the directories that a sandbox has for life; the scope removes them. */
export async function makeHome(runtime: Runtime, id: string, scope: Scope): Promise<SandboxHome> {
  const home = claimHome(runtime, id, scope);
  await mkdir(home.dir, { mode: 0o700 });
  await mkdir(home.socketDir, { mode: 0o700 });
  return home;
}

/** Its directories are in use from now on; the scope removes them. */
export function claimHome(runtime: Runtime, id: string, scope: Scope): SandboxHome {
  const home = sandboxHome(runtime.config, id);
  runtime.places.add(id);
  scope.defer(() => void runtime.places.delete(id));
  scope.defer(() => removeTree(home.dir));
  scope.defer(() => removeTree(home.socketDir));
  return home;
}

/** Makes the directories of one machine; the scope removes them. */
export async function makePlace(
  runtime: Runtime,
  id: string,
  number: number,
  scope: Scope,
): Promise<SandboxPaths> {
  const paths = sandboxPaths(runtime.config, id, number);
  scope.defer(() => removeTree(paths.dir));
  await mkdir(paths.dir, { mode: 0o700 });
  scope.defer(() => removeTree(paths.socketDir));
  // The runtime directory may have been emptied since the home was made.
  await mkdir(paths.socketDir, { mode: 0o700, recursive: true });
  return paths;
}

/** The snapshot's disk as a machine sees it below its own overlay, nearest first. */
function backingOf(snapshot: StoredSnapshot): DiskLayer[] {
  const layers = snapshotDisks(snapshot).map((path): DiskLayer => ({ path, format: "qcow2" }));
  return [...layers.reverse(), { path: snapshotFile(snapshot, "rootfs"), format: "raw" }];
}

/** What it begins from is known to a later daemon, whatever becomes of the snapshot. */
async function keepManifest(snapshot: StoredSnapshot, dir: string): Promise<void> {
  const [from, to] = [join(snapshot.dir, manifestName), join(dir, manifestName)];
  try {
    await link(from, to);
  } catch (error) {
    if (!isErrno(error, "EXDEV", "EPERM", "EMLINK")) throw error;
    await copyFile(from, to);
  }
}

export async function prepareMachine(
  runtime: Runtime,
  { id, number, snapshot }: { id: string; number: number; snapshot: StoredSnapshot },
  signal?: AbortSignal,
): Promise<PreparedIncarnation> {
  await using scope = new Scope();
  const { manifest } = snapshot;
  scope.defer(runtime.images.hold(snapshot.id));
  const memoryFile = await runtime.store.flatMemory(snapshot, signal ? { signal } : {});
  const paths = await makePlace(runtime, id, number, scope);
  await createOverlay(paths.overlay, manifest.files.rootfs.bytes);
  await keepManifest(snapshot, paths.dir);
  const imageStamp = manifest.files.layer ? await stampOf(memoryFile) : undefined;
  const machine = scope.use(
    await runtime.engine.prepare(
      {
        shape: shapeOf({
          vcpus: manifest.machine.vcpus,
          memoryMib: manifest.machine.memory_mib,
          accelerator: manifest.machine.accelerator,
        }),
        place: { socketDir: paths.socketDir, consolePath: paths.consolePath, logPath: paths.logPath },
        memoryFile,
        disk: { overlay: paths.overlay, backing: backingOf(snapshot) },
        deviceState: snapshotFile(snapshot, "devices"),
      },
      signal ? { signal } : {},
    ),
  );
  // By now the VMM has opened every file. If the tag was given to another snapshot meanwhile, they may be of both.
  if (!(await runtime.store.isCurrent(snapshot))) {
    throw new AppError("wrong_state", `Cannot fork snapshot "${snapshot.tag}": it was replaced meanwhile`, {
      remedy: { action: "fork_another", tag: snapshot.tag },
    });
  }
  return { id, number, snapshot, paths, machine, imageStamp, scope: scope.keep() };
}

/** What a machine is told in its first moments. */
export type Birth = {
  identity: GuestIdentity;
  env: Record<string, string>;
  /** JSON for /run/forkd/values.json */
  values?: unknown;
  limits?: AskedLimits | undefined;
  /** what the disk of the sandbox took before this machine */
  diskUsedBytes?: number | undefined;
  /** when the caller asked */
  askedAt: number;
  pooled: boolean;
};

export async function startMachine(
  runtime: Runtime,
  prepared: PreparedIncarnation,
  birth: Birth,
): Promise<SandboxMachine> {
  await using machineScope = prepared.scope.keep();
  await using scope = new Scope();
  const { manifest } = prepared.snapshot;
  const group = makeGroup(runtime, prepared, birth.limits);
  // A group can be removed when its machine has ended, so it goes last.
  if (group) scope.use(group);
  scope.use(machineScope.keep());
  await holdToLimits(prepared, group, birth.limits, birth.diskUsedBytes);
  const explain = diagnose(group, birth.limits, manifest.machine.memory_mib);
  const agent = scope.use(
    AgentClient.open(prepared.machine.agentSocket, {
      atBoundary: manifest.agent_at_boundary ?? true,
      helloTimeoutMs: runtime.config.readyTimeoutMs,
      log: runtime.log,
    }),
  );
  const answered = async () => {
    // The host's hello is in the socket before the guest's first instruction.
    const machine = await prepared.machine.start();
    const afterFork = agent.afterFork({ entropy: randomBytes(64), realtimeNs: wallClock, ...birth.identity });
    const kernels = manifest.kernels.map((record) => attachKernel(agent, record));
    const seeded = kernels.map(({ client }, nth) => {
      const done = client.afterFork(randomBytes(64), birth.env);
      if ((manifest.kernels[nth]?.unanswered.length ?? 0) === 0) return done;
      // It is in the middle of an eval. The agent has had it re-seed its generators; the rest follows the eval, and a
      // kernel that cannot do it must not be used.
      done.catch(() => client[Symbol.asyncDispose]().catch(() => undefined));
      return undefined;
    });
    await Promise.all([agent.ready, afterFork, ...seeded]);
    // The time that was sent ahead is as old as the start was long. Nobody waits for the correction.
    agent.setClock(wallClock).catch(() => undefined);
    if (birth.values !== undefined) {
      await writeGuestFile(agent, "/run/forkd/values.json", [Buffer.from(JSON.stringify(birth.values))]);
    }
    return { machine, kernels: new Map(kernels.map((kernel) => [kernel.language, kernel])) };
  };
  const died = prepared.machine.exited.then((reason): never => {
    throw new AppError(
      "engine_failed",
      `Cannot start a child of "${prepared.snapshot.tag}": ${explain(reason) ?? reason.text}`,
      {
        details: { reason: reason.text, log: reason.log, console: reason.console },
      },
    );
  });
  died.catch(() => undefined);
  const { machine, kernels } = await withDeadline(
    Promise.race([answered(), died]),
    runtime.config.readyTimeoutMs,
    () =>
      new AppError(
        "agent_unreachable",
        `The agent in ${prepared.id} did not answer within ${runtime.config.readyTimeoutMs} ms`,
      ),
  );
  return new SandboxMachine({
    number: prepared.number,
    base: prepared.snapshot,
    paths: prepared.paths,
    machine,
    agent,
    kernels,
    imageStamp: prepared.imageStamp,
    scope: scope.keep(),
    readyMs: performance.now() - birth.askedAt,
    pooled: birth.pooled,
    notEnforced: notEnforceable(runtime, birth.limits),
    diagnose: explain,
  });
}

export async function prepareChild(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  signal?: AbortSignal,
): Promise<PreparedChild> {
  await using homeScope = new Scope();
  const id = newSandboxId();
  const home = await makeHome(runtime, id, homeScope);
  const prepared = await prepareMachine(runtime, { id, number: 0, snapshot }, signal);
  return { ...prepared, home, homeScope: homeScope.keep() };
}

/** Ends a process that is not needed after all, and removes what was made for it. */
export async function discardChild({ scope, homeScope }: PreparedChild): Promise<void> {
  try {
    await scope[Symbol.asyncDispose]();
  } finally {
    await homeScope[Symbol.asyncDispose]();
  }
}

export async function startChild(
  runtime: Runtime,
  child: PreparedChild,
  request: ChildRequest,
): Promise<Sandbox> {
  await using homeScope = child.homeScope.keep();
  const facts: SandboxFacts = {
    id: child.id,
    identity: guestIdentity(child.id),
    env: request.env,
    labels: request.labels,
    index: request.index,
    createdAt: Date.now() / 1000,
    workspace: request.workspace,
    owner: request.owner,
    limits: request.limits,
  };
  const sandbox = new Sandbox({
    facts,
    home: child.home,
    homeScope: homeScope.keep(),
    snapshotTag: child.snapshot.tag,
    ttlSecs: request.ttlSecs,
    timeouts: request.timeouts,
    machines: 1,
  });
  if (request.ttlSecs !== undefined) sandbox.expiresAt = facts.createdAt + request.ttlSecs;
  // Written while the machine starts; it gets its name when the sandbox is handed out.
  const staged = sandbox.record.stage(
    recordOf(sandbox, { ...sandbox.recordState, machine: machineFacts(child) }),
  );
  staged.catch(() => undefined);
  try {
    const incarnation = await startMachine(runtime, child, {
      identity: facts.identity,
      env: childEnv(child.snapshot.manifest.env, facts),
      values: request.values,
      limits: request.limits,
      askedAt: request.askedAt,
      pooled: request.pooled,
    });
    sandbox.enter(incarnation);
    await staged;
    return sandbox;
  } catch (error) {
    await sandbox[Symbol.asyncDispose]();
    throw error;
  }
}

function machineFacts({ number, machine, paths, snapshot, imageStamp }: PreparedIncarnation): MachineFacts {
  return { number, process: machine.process, socketDir: paths.socketDir, base: snapshot, imageStamp };
}
