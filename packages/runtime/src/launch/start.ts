/**
 * Second step of a machine: load the state, run, and do the after-fork step in agent and kernels. A failure
 * leaves nothing of the machine.
 */
import { randomBytes } from "node:crypto";
import { AppError, type AskedLimits } from "@forkd/contract";
import { Scope, withDeadline } from "@forkd/base";
import { AgentClient, writeFile as writeGuestFile, type ExitReason, type Machine } from "@forkd/machine";
import { diagnose, holdToLimits, makeGroup, notEnforceable } from "../admission/limits.ts";
import { wallClock } from "../capture/guest-clock.ts";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { GuestIdentity } from "../sandbox/paths.ts";
import type { EndReason } from "../sandbox/exit-reason.ts";
import { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { PreparedLaunch } from "./prepared.ts";
import { attachKernel, type WarmKernel } from "./warm-kernel.ts";

type StartRequest = {
  identity: GuestIdentity;
  env: Record<string, string>;
  /** JSON for /run/forkd/values.json */
  values?: unknown;
  limits?: AskedLimits | undefined;
  network: SandboxNetwork;
  /** disk space that the sandbox used before this machine */
  diskUsedBytes?: number | undefined;
  /** when the caller asked */
  askedAt: number;
  pooled: boolean;
};

export async function startMachine(
  runtime: Pick<Runtime, "cgroups" | "config" | "engine" | "log" | "network">,
  prepared: PreparedLaunch,
  request: StartRequest,
): Promise<SandboxMachine> {
  await using machineScope = prepared.scope.keep();
  await using scope = new Scope();
  const { manifest } = prepared.snapshot;
  const { readyTimeoutMs } = runtime.config;
  const group = makeGroup(runtime, prepared, request.limits);
  // A group can be removed only when its machine has ended, so it is released last.
  if (group) scope.use(group);
  scope.use(machineScope.keep());
  await holdToLimits(prepared, group, request.limits, request.diskUsedBytes);
  const explain = diagnose(group, request.limits, manifest.machine.memory_mib);
  const agent = scope.use(
    AgentClient.open(prepared.machine.agentSocket, {
      atBoundary: manifest.agent_at_boundary ?? true,
      helloTimeoutMs: readyTimeoutMs,
      deadlines: runtime.config.guestDeadlines,
      log: runtime.log,
    }),
  );
  const { machine, kernels } = await withDeadline(
    Promise.race([connected(prepared, agent, request), failOnExit(prepared, explain)]),
    readyTimeoutMs,
    () =>
      new AppError(
        "agent_unreachable",
        `The agent in ${prepared.id} did not answer within ${readyTimeoutMs} ms`,
      ),
  );
  await requireAttachable(runtime, prepared);
  return new SandboxMachine({
    number: prepared.number,
    base: prepared.snapshot,
    paths: prepared.paths,
    machine,
    agent,
    slot: prepared.slot,
    kernels: new Map(kernels.map((kernel) => [kernel.language, kernel])),
    imageStamp: prepared.imageStamp,
    scope: scope.keep(),
    readyMs: performance.now() - request.askedAt,
    pooled: request.pooled,
    notEnforced: notEnforceable(runtime, request.limits),
    diagnose: explain,
  });
}

/** A machine whose sockets are gone could not be adopted by the next daemon. */
async function requireAttachable(
  { engine }: Pick<Runtime, "engine">,
  { id, paths }: PreparedLaunch,
): Promise<void> {
  if (await engine.canAttach(paths)) return;
  throw new AppError(
    "wrong_state",
    `Cannot start ${id}: ${paths.socketDir} was removed while its machine started`,
    { details: { id, socket_dir: paths.socketDir }, remedy: { action: "retry_later" } },
  );
}

/** The rules of the sandbox apply before it is handed out. */
async function connected(
  prepared: PreparedLaunch,
  agent: AgentClient,
  request: StartRequest,
): Promise<{ machine: Machine; kernels: WarmKernel[] }> {
  const applied = prepared.slot.apply(request.network, request.limits);
  const [started] = await Promise.all([run(prepared, agent, request), applied]);
  return started;
}

/** Loads the state, runs the guest, and gives agent and kernels their own identity and randomness. */
async function run(
  { machine: prepared, snapshot: { manifest } }: PreparedLaunch,
  agent: AgentClient,
  { identity, env, values, network }: StartRequest,
): Promise<{ machine: Machine; kernels: WarmKernel[] }> {
  // The host's hello is in the socket before the guest's first instruction.
  const machine = await prepared.start();
  const afterFork = agent.afterFork({
    entropy: randomBytes(64),
    realtimeNs: wallClock,
    ...identity,
    network: network.mode === "none" ? "down" : "up",
    // A parent was connected to nothing.
    skipConnections: manifest.origin.kind === "build",
  });
  const kernels = manifest.kernels.map((record) => attachKernel(agent, record, env));
  const seeded = kernels.map(({ client }, nth) => {
    const done = client.afterFork(randomBytes(64), env);
    if ((manifest.kernels[nth]?.unanswered.length ?? 0) === 0) return done;
    // The kernel is in the middle of an eval. The agent has made it re-seed its generators; the rest follows
    // the eval, and a kernel that cannot do it must not be used.
    done.catch(() => client[Symbol.asyncDispose]().catch(() => undefined));
    return undefined;
  });
  await Promise.all([agent.ready, afterFork, ...seeded]);
  // The time that was sent first is late by the length of the start. Nothing waits for the correction.
  agent.setClock(wallClock).catch(() => undefined);
  if (values !== undefined) {
    await writeGuestFile(agent, "/run/forkd/values.json", [Buffer.from(JSON.stringify(values))]);
  }
  return { machine, kernels };
}

/** Rejects when the VMM exits. */
function failOnExit(
  { machine, snapshot }: PreparedLaunch,
  explain: (exit: ExitReason) => EndReason | undefined,
): Promise<never> {
  const failed = machine.exited.then((reason): never => {
    throw new AppError(
      "engine_failed",
      `Cannot start a child of "${snapshot.tag}": ${explain(reason)?.text ?? reason.text}`,
      { details: { reason: reason.text, log: reason.log, console: reason.console } },
    );
  });
  failed.catch(() => undefined);
  return failed;
}
