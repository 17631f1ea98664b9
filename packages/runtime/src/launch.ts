/**
 * One child from one snapshot, in two steps so that the first can be done ahead of need:
 *
 *   prepareChild()  directories, private disk, a VMM process that waits        (no state loaded)
 *   startChild()    load state, run, after-fork step in agent and kernels      → Sandbox
 *
 * Each step owns what it made in a Scope; whatever fails, nothing of the child remains.
 */
import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { AppError } from "@forkd/contract";
import { removeTree, Scope, withDeadline } from "@forkd/base";
import {
  AgentClient,
  createOverlay,
  shapeOf,
  writeFile as writeGuestFile,
  type PreparedMachine,
} from "@forkd/machine";
import { snapshotFile, type StoredSnapshot } from "@forkd/store";
import { guestIdentity, newSandboxId, sandboxPaths, type SandboxPaths } from "./identity.ts";
import type { Runtime } from "./open-runtime.ts";
import { Sandbox } from "./sandbox/sandbox.ts";
import { wallClock } from "./wall-clock.ts";
import { attachKernel } from "./warm-kernel.ts";

export type PreparedChild = {
  id: string;
  snapshot: StoredSnapshot;
  paths: SandboxPaths;
  machine: PreparedMachine;
  scope: Scope;
};

export type ChildRequest = {
  index: number;
  env: Record<string, string>;
  values: unknown;
  labels: Record<string, string>;
  ttlSecs: number | undefined;
  /** when the caller asked, for ready_ms */
  askedAt: number;
  pooled: boolean;
};

/** Makes the directories of a sandbox; the scope removes them. */
export async function makePlace(runtime: Runtime, id: string, scope: Scope): Promise<SandboxPaths> {
  const paths = sandboxPaths(runtime.config, id);
  runtime.places.add(id);
  scope.defer(() => void runtime.places.delete(id));
  scope.defer(() => removeTree(paths.dir));
  await mkdir(paths.dir, { mode: 0o700 });
  scope.defer(() => removeTree(paths.socketDir));
  await mkdir(paths.socketDir, { mode: 0o700 });
  return paths;
}

export async function prepareChild(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  signal?: AbortSignal,
): Promise<PreparedChild> {
  await using scope = new Scope();
  const id = newSandboxId();
  const { manifest } = snapshot;
  const paths = await makePlace(runtime, id, scope);
  await createOverlay(paths.overlay, manifest.files.rootfs.bytes);
  const machine = scope.use(
    await runtime.engine.prepare(
      {
        shape: shapeOf({
          vcpus: manifest.machine.vcpus,
          memoryMib: manifest.machine.memory_mib,
          accelerator: manifest.machine.accelerator,
        }),
        place: { socketDir: paths.socketDir, consolePath: paths.consolePath, logPath: paths.logPath },
        memoryFile: snapshotFile(snapshot, "memory"),
        disk: {
          overlay: paths.overlay,
          backing: [
            { path: snapshotFile(snapshot, "disk"), format: "qcow2" },
            { path: snapshotFile(snapshot, "rootfs"), format: "raw" },
          ],
        },
        deviceState: snapshotFile(snapshot, "devices"),
      },
      signal ? { signal } : {},
    ),
  );
  // By now the VMM has opened every file. If the tag was given to another snapshot meanwhile, they may be of both.
  if (!(await runtime.store.isCurrent(snapshot))) {
    throw new AppError(
      "wrong_state",
      `Snapshot "${snapshot.tag}" was replaced while it was forked. Fork again`,
    );
  }
  return { id, snapshot, paths, machine, scope: scope.keep() };
}

export async function startChild(
  runtime: Runtime,
  child: PreparedChild,
  request: ChildRequest,
): Promise<Sandbox> {
  await using scope = child.scope.keep();
  const { manifest } = child.snapshot;
  const identity = guestIdentity(child.id);
  const env = {
    ...manifest.env,
    FORKD_SANDBOX_ID: child.id,
    FORKD_INDEX: String(request.index),
    ...request.env,
  };
  const agent = scope.use(
    AgentClient.open(child.machine.agentSocket, {
      atBoundary: true,
      helloTimeoutMs: runtime.config.readyTimeoutMs,
      log: runtime.log,
    }),
  );
  const answered = async () => {
    // The host's hello is in the socket before the guest's first instruction.
    const machine = await child.machine.start();
    const afterFork = agent.afterFork({ entropy: randomBytes(64), realtimeNs: wallClock, ...identity });
    const kernels = manifest.kernels.map((record) => attachKernel(agent, record));
    const seeded = kernels.map(({ client }) => client.afterFork(randomBytes(64), env));
    await Promise.all([agent.ready, afterFork, ...seeded]);
    if (request.values !== undefined) {
      await writeGuestFile(agent, "/run/forkd/values.json", [Buffer.from(JSON.stringify(request.values))]);
    }
    return { machine, kernels: new Map(kernels.map((kernel) => [kernel.language, kernel])) };
  };
  const died = child.machine.exited.then((reason): never => {
    throw new AppError("engine_failed", `Cannot start a child of "${child.snapshot.tag}": ${reason.text}`, {
      details: { reason: reason.text, log: reason.log, console: reason.console },
    });
  });
  died.catch(() => undefined);
  const { machine, kernels } = await withDeadline(
    Promise.race([answered(), died]),
    runtime.config.readyTimeoutMs,
    () =>
      new AppError(
        "agent_unreachable",
        `The agent in ${child.id} did not answer within ${runtime.config.readyTimeoutMs} ms`,
      ),
  );
  return new Sandbox({
    id: child.id,
    snapshot: child.snapshot,
    identity,
    env,
    paths: child.paths,
    machine,
    agent,
    kernels,
    scope: scope.keep(),
    request,
    readyMs: performance.now() - request.askedAt,
  });
}
