/**
 * Second step of a machine: load the state, run, and do the after-fork step in agent and kernels. A failure
 * leaves nothing of the machine.
 */
import { AppError, type AskedLimits } from "@forkd/contract";
import { Scope, withDeadline, type Trace } from "@forkd/base";
import { AgentClient, type ExitReason, type Machine } from "@forkd/machine";
import { diagnose, holdToLimits, makeGroup, notEnforceable } from "../admission/limits.ts";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { EndReason } from "../sandbox/exit-reason.ts";
import type { GuestIdentity } from "../sandbox/paths.ts";
import { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { afterFork } from "./after-fork.ts";
import type { PreparedLaunch } from "./prepared.ts";
import type { WarmKernel } from "./warm-kernel.ts";

export type StartRequest = {
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
  trace?: Trace | undefined;
};

export async function startMachine(
  runtime: Pick<Runtime, "cgroups" | "config" | "engine" | "log" | "network">,
  prepared: PreparedLaunch,
  request: StartRequest,
): Promise<SandboxMachine> {
  await using machineScope = prepared.scope.keep();
  await using scope = new Scope();
  const { readyTimeoutMs } = runtime.config;
  const group = makeGroup(runtime, prepared, request.limits);
  // A group can be removed only when its machine has ended, so it is released last.
  if (group) scope.use(group);
  scope.use(machineScope.keep());
  await holdToLimits(prepared.machine, group, request.limits, request.diskUsedBytes);
  const explain = diagnose(group, request.limits, prepared.snapshot.manifest.machine.memory_mib);
  const agent = scope.use(openAgent(runtime, prepared));
  const { machine, kernels } = await answered(
    { ...prepared, explain },
    connected(prepared, agent, request),
    readyTimeoutMs,
  );
  await requireAttachable(runtime, prepared);
  const parts = { machine, agent, kernels, explain, from: "start" } as const;
  return sandboxMachine(runtime, prepared, request, parts, scope);
}

export function openAgent(
  { config, log }: Pick<Runtime, "config" | "log">,
  { machine, snapshot }: Pick<PreparedLaunch, "machine" | "snapshot">,
): AgentClient {
  return AgentClient.open(machine.agentSocket, {
    atBoundary: snapshot.manifest.agent_at_boundary ?? true,
    helloTimeoutMs: config.readyTimeoutMs,
    deadlines: config.guestDeadlines,
    log,
  });
}

type Explained = Pick<PreparedLaunch, "id" | "snapshot"> & {
  machine: { readonly exited: Promise<ExitReason> };
  explain: (exit: ExitReason) => EndReason | undefined;
};

/** Rejects if the VMM exits first, or if the guest does not answer in time. */
export function answered<T>(launch: Explained, work: Promise<T>, ms: number): Promise<T> {
  // The other outcome of the race is reported; this one must not become an unhandled rejection.
  work.catch(() => undefined);
  return withDeadline(
    Promise.race([work, failOnExit(launch)]),
    ms,
    () => new AppError("agent_unreachable", `The agent in ${launch.id} did not answer within ${ms} ms`),
  );
}

/** What is known of a machine when it has answered. */
type Answered = {
  machine: Machine;
  agent: AgentClient;
  kernels: readonly WarmKernel[];
  explain: (exit: ExitReason) => EndReason | undefined;
  from: SandboxMachine["from"];
};

/** The result owns everything in `scope`. */
export function sandboxMachine(
  runtime: Pick<Runtime, "cgroups" | "engine" | "network">,
  launch: Omit<PreparedLaunch, "machine">,
  { limits, askedAt }: StartRequest,
  { kernels, explain, ...parts }: Answered,
  scope: Scope,
): SandboxMachine {
  return new SandboxMachine({
    ...parts,
    number: launch.number,
    base: launch.snapshot,
    paths: launch.paths,
    slot: launch.slot,
    kernels: new Map(kernels.map((kernel) => [kernel.language, kernel])),
    image: launch.image,
    scope: scope.keep(),
    readyMs: performance.now() - askedAt,
    notEnforced: notEnforceable(runtime, limits),
    diagnose: explain,
  });
}

/** A machine whose sockets are gone could not be adopted by the next daemon. */
export async function requireAttachable(
  { engine }: Pick<Runtime, "engine">,
  { id, paths }: Pick<PreparedLaunch, "id" | "paths">,
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
  { slot, machine: prepared, snapshot: { manifest } }: PreparedLaunch,
  agent: AgentClient,
  { network, limits, ...step }: StartRequest,
): Promise<{ machine: Machine; kernels: WarmKernel[] }> {
  const run = async () => {
    // The host's hello is in the socket before the guest's first instruction.
    const machine = await prepared.start();
    step.trace?.mark("loaded");
    const isConnected = network.mode !== "none";
    return { machine, kernels: await afterFork(agent, manifest, { ...step, isConnected }) };
  };
  const [started] = await Promise.all([run(), slot.apply(network, limits)]);
  return started;
}

/** Rejects when the VMM exits. */
function failOnExit({ machine, snapshot, explain }: Explained): Promise<never> {
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
