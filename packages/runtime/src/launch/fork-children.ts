/**
 * Makes children of a snapshot, for fork, branch and workspaces. A child that fails does not affect the
 * others.
 */
import {
  AppError,
  fromErrorBody,
  isSandbox,
  toAppError,
  toErrorBody,
  type AskedLimits,
  type ForkEntry,
  type ForkRequest,
  type SandboxInfo,
} from "@forkd/contract";
import { Trace, type FairSemaphore } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import { diskShare, memoryShare, type Reservation } from "../admission/admission.ts";
import { requireEnforceable } from "../admission/limits.ts";
import type { Context } from "../context.ts";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxTimeouts } from "../sandbox/facts.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { requireCompatible } from "../snapshots/compatibility.ts";
import { explainMissingSnapshot } from "../snapshots/missing-snapshot.ts";
import { requireVerified } from "../verify/requirement.ts";
import { handOutChild, prepareChild, startChild, type ChildRequest } from "./child.ts";

/** What a request says about the children, whatever they are forked from. */
type ChildrenRequest = Pick<
  ForkRequest,
  "n" | "labels" | "env" | "vary" | "ttl_secs" | "idle_timeout_secs" | "on_timeout" | "auto_resume"
> & {
  workspace?: string | undefined;
};

type ForkPlan = {
  snapshot: StoredSnapshot;
  request: ChildrenRequest;
  limits: AskedLimits | undefined;
  network: SandboxNetwork;
  /** the children are for the check that the snapshot requires */
  isVerification?: boolean;
  /** the children come from a snapshot that is still to be made, which has no ready children */
  isOfBranch?: boolean;
};

/** A plan with the capacity reserved for it. */
export type AdmittedFork = ForkPlan & { capacity: Reservation };

/**
 * Reserves capacity for all children, or refuses before anything is started. The caller owns the reservation.
 */
export function admitFork(
  runtime: Pick<Runtime, "admission" | "cgroups" | "engine" | "memoryEstimates" | "network" | "pool">,
  plan: ForkPlan,
  caller: Context["caller"],
): AdmittedFork {
  const { snapshot, request, limits } = plan;
  requireEnforceable(runtime, limits);
  const { machine, files } = snapshot.manifest;
  const capacity = runtime.admission.admit({
    what: `fork ${request.n}`,
    n: request.n,
    memoryMib: memoryShare(machine.memory_mib, limits?.memory_mib),
    expectMib: runtime.memoryEstimates.of(snapshot.id),
    ...(!plan.isOfBranch && { readyIn: snapshot, readyCount: runtime.pool.available(snapshot) }),
    diskMib: diskShare(files.rootfs.bytes, limits?.disk_mib),
    caller,
  });
  return { ...plan, capacity };
}

/**
 * One entry per child, in order: sandbox or error. The caller runs it while the runtime is open. The
 * reservation is released: a child counts from the moment it is registered.
 */
export async function forkChildren(
  runtime: Runtime,
  plan: AdmittedFork,
  context: Context,
): Promise<ForkEntry[]> {
  using capacity = plan.capacity;
  const { snapshot, request } = plan;
  const { signal, log } = context;
  const askedAt = performance.now();
  try {
    requireCompatible(snapshot.tag, snapshot.manifest, runtime.host);
    if (!plan.isVerification) await requireVerified(runtime, snapshot);
    // The files of a ready child were verified when it was made, and its machine has them open.
    if (runtime.pool.available(snapshot) === 0) await runtime.store.verify(snapshot, { signal });
  } catch (error) {
    throw await explainMissingSnapshot(runtime, snapshot, error);
  }
  // One object for all children: the semaphore takes turns between calls by identity.
  const call = { caller: context.caller?.name ?? "", signal };
  // Later than that of the child before: lists, which are ordered by age, have the children by index.
  let createdAt = 0;
  const nextTime = () => (createdAt = Math.max(Date.now() / 1000, createdAt + 1e-6));
  const one = async (index: number): Promise<ForkEntry> => {
    const trace = Trace.when(log, context.receivedAt ?? askedAt);
    trace?.mark("admitted");
    try {
      const place = { ...context, index, askedAt, createdAt: nextTime(), trace };
      const child =
        (await forkReady(runtime, plan, place, call)) ?? (await forkCold(runtime, plan, place, call));
      if (trace) log.debug({ event: "sandbox.trace", sandbox: child.id, ...trace.facts() });
      return child;
    } catch (thrown) {
      const error = await explainMissingSnapshot(runtime, snapshot, thrown);
      log.warn({ event: "sandbox.fork", outcome: "failed", index, error });
      const body = toErrorBody(error);
      runtime.metrics.childFailures.add({ code: body.code });
      return { ...body, index };
    } finally {
      capacity.release();
    }
  };
  const made = await runtime.pool.during(snapshot, request.n, () =>
    Promise.all(Array.from({ length: request.n }, (_, index) => one(index))),
  );
  await removeIfAborted(runtime, made, signal);
  const entries = await Promise.all(made.map((entry) => withoutDead(runtime, entry)));
  runtime.metrics.forkSeconds.observe((performance.now() - askedAt) / 1000);
  learnFrom(runtime, snapshot);
  log.info({
    event: "sandbox.fork",
    outcome: "ok",
    tag: snapshot.tag,
    n: request.n,
    failed: entries.filter((entry) => !isSandbox(entry)).length,
    durationMs: Math.round(performance.now() - askedAt),
  });
  return entries;
}

/** Which child of its call, and when it began. */
type Place = { index: number; askedAt: number; createdAt: number; trace: Trace | undefined };

type Call = Parameters<FairSemaphore["take"]>[0];

/** After so many children that have exited or do not answer, one is started. */
const maxHandOuts = 2;

/**
 * A child of the pool, if there is one. One that cannot be handed out costs the caller time and nothing else:
 * another takes its place. If its guest refused a step, one that is started shows whether that is its own fault.
 */
async function forkReady(
  runtime: Runtime,
  plan: ForkPlan,
  place: Context & Place,
  call: Call,
): Promise<SandboxInfo | undefined> {
  for (let attempt = 1; attempt <= maxHandOuts && runtime.pool.available(plan.snapshot) > 0; attempt++) {
    using _turn = await runtime.handOuts.take(call);
    const child = await runtime.pool.take(plan.snapshot);
    if (!child) return undefined;
    try {
      const sandbox = await handOutChild(runtime, child, requestOf(plan, place));
      return await complete(runtime, sandbox, place.trace);
    } catch (error) {
      runtime.metrics.poolFailures.add({});
      place.log.warn({ event: "pool.hand_out", outcome: "failed", sandbox: child.id, error });
      call.signal?.throwIfAborted();
      const { code } = toAppError(error);
      if (code !== "engine_failed" && code !== "agent_unreachable") return undefined;
    }
  }
  return undefined;
}

async function forkCold(
  runtime: Runtime,
  plan: ForkPlan,
  place: Context & Place,
  call: Call,
): Promise<SandboxInfo> {
  using _start = await runtime.starts.take(call);
  const { signal, trace } = place;
  // A call that counted on ready children has not verified the files.
  await runtime.store.verify(plan.snapshot, { signal });
  trace?.mark("turn");
  const child = await prepareChild(runtime, plan.snapshot, { signal, trace });
  return complete(runtime, await startChild(runtime, child, requestOf(plan, place)), trace);
}

function requestOf(
  { request, limits, network }: ForkPlan,
  { index, askedAt, createdAt, caller, trace }: Context & Place,
): ChildRequest {
  const variation = request.vary[index];
  return {
    index,
    env: { ...request.env, ...variation?.env },
    values: variation?.values,
    labels: request.labels,
    ttlSecs: request.ttl_secs,
    workspace: request.workspace,
    owner: caller?.name,
    limits,
    network,
    timeouts: timeoutsOf(request),
    askedAt,
    createdAt,
    trace,
  };
}

/** The child is registered and announced when its record is committed, not before. */
async function complete(runtime: Runtime, sandbox: Sandbox, trace: Trace | undefined): Promise<SandboxInfo> {
  await commitRecord(runtime, sandbox);
  trace?.mark("committed");
  runtime.registry.add(sandbox);
  const info = sandbox.info();
  runtime.events.sandbox("sandbox.created", info);
  runtime.metrics.readySeconds.observe(info.ready_ms / 1000);
  runtime.metrics.children.add({ from: info.from });
  return info;
}

/** After it a restarted daemon finds the sandbox. If it fails, nothing of the sandbox is left. */
async function commitRecord(runtime: Pick<Runtime, "log">, sandbox: Sandbox): Promise<void> {
  try {
    await sandbox.record.commit();
    sandbox.requireAlive();
  } catch (error) {
    const failure = sandbox.death() ?? error;
    await sandbox[Symbol.asyncDispose]().catch((left: unknown) =>
      runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, error: left }),
    );
    throw failure;
  }
}

/** A child that died while the others were made becomes an error, and is removed. */
async function withoutDead(runtime: Pick<Runtime, "registry">, entry: ForkEntry): Promise<ForkEntry> {
  const sandbox = isSandbox(entry) ? runtime.registry.find(entry.id) : undefined;
  const death = sandbox?.death();
  if (!sandbox || !death) return entry;
  await runtime.registry.remove(sandbox.id);
  return { ...toErrorBody(death), index: sandbox.facts.index };
}

/** By default a workspace is paused where other sandboxes are killed. */
function timeoutsOf(request: ChildrenRequest): SandboxTimeouts {
  return {
    idleSecs: request.idle_timeout_secs,
    onTimeout: request.on_timeout ?? (request.workspace === undefined ? "kill" : "pause"),
    autoResume: request.auto_resume ?? false,
  };
}

/** From the oldest child, which has had the most time to grow. */
function learnFrom(runtime: Pick<Runtime, "memoryEstimates" | "registry">, snapshot: StoredSnapshot): void {
  const child = runtime.registry.all().find(({ machineAtWork }) => machineAtWork?.base.id === snapshot.id);
  const pid = child?.machineAtWork?.machine.process.pid;
  if (pid !== undefined) void runtime.memoryEstimates.learn(snapshot.id, pid);
}

/** A caller that has gone cannot own children. */
async function removeIfAborted(
  runtime: Pick<Runtime, "registry">,
  entries: readonly ForkEntry[],
  signal: AbortSignal | undefined,
): Promise<void> {
  if (!signal?.aborted) return;
  await Promise.all(
    entries.filter(isSandbox).map(async ({ id }) => {
      if (runtime.registry.find(id)) await runtime.registry.remove(id);
    }),
  );
  throw new AppError("cancelled", "The fork was cancelled; its children were removed");
}

/** Throws the error of the first child if none became a sandbox. */
export function requireSandbox(entries: readonly ForkEntry[]): void {
  const [first] = entries;
  if (first === undefined || entries.some(isSandbox) || isSandbox(first)) return;
  throw fromErrorBody({ ...first, details: { ...first.details, children: entries.length } });
}
