/**
 * Takes a snapshot of a running sandbox, which keeps running.
 *
 * The source is paused only inside takeInstant(); everything slow happens after it runs again. The snapshot
 * can be used when it is published; until then its tag is in the list of open branches.
 */
import { randomBytes } from "node:crypto";
import {
  advice,
  AppError,
  toAppError,
  type BranchMode,
  type BranchRequest,
  type BranchResult,
  type ForkEntry,
} from "@forkd/contract";
import { Scope, within } from "@forkd/base";
import { physicalBytes, snapshotFile, type Draft, type StoredSnapshot } from "@forkd/store";
import { limitsOf } from "../admission/limits.ts";
import { collapseIfLong } from "./disk-chain.ts";
import { clockMs, correctClock } from "./guest-clock.ts";
import type { Instant } from "./instant.ts";
import { pinBase, requireParent, type LayerBase } from "./layer-base.ts";
import type { OpenBranch } from "./open-branches.ts";
import { round } from "./stopwatch.ts";
import { takeInstant } from "./take-instant.ts";
import { writeInstant } from "./write-instant.ts";
import type { Context } from "../context.ts";
import { admitFork, forkChildren, type AdmittedFork } from "../launch/fork-children.ts";
import { networkForBranch } from "../network/asked-network.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { describeOpen, describeSnapshot } from "../snapshots/describe.ts";
import { requireVerifiedBranch } from "../verify/requirement.ts";

const pageBytes = 4096;
/** how long a response with `wait: false` waits for the guest to report its stall */
const shortMs = 3;

/** One branch from the request to the published snapshot. */
type Work = {
  sandbox: Sandbox;
  mode: BranchMode;
  entry: OpenBranch;
  draft: Draft;
  askedAt: number;
  signal: AbortSignal | undefined;
};
type Captured = {
  base: LayerBase;
  source: SandboxMachine;
  instant: Instant;
  pauseMs: number;
  resumedMs: number;
};

/** The caller runs it while the runtime is open. */
export async function branchSandbox(
  runtime: Runtime,
  request: BranchRequest,
  context: Context,
): Promise<BranchResult> {
  const { signal, log } = context;
  const askedAt = performance.now();
  const sandbox = runtime.registry.get(request.id);
  const source = sandbox.current;
  const mode = modeOf(request);
  const tag = request.tag ?? automaticTag(sandbox.id);
  await using scope = new Scope();
  const entry = runtime.branches.open({ tag, sandbox: sandbox.id, mode, startedAt: Date.now() / 1000 });
  scope.defer(() => entry[Symbol.dispose]());
  // The children inherit the limits of the source.
  if (request.n > 0) await requireVerifiedBranch(runtime, source.base);
  const limits = request.n === 0 ? undefined : limitsOf(runtime, request, sandbox.facts.limits);
  const network = networkForBranch(runtime, sandbox.network, request, context.caller);
  const plan = { snapshot: source.base, request, limits, network, isOfBranch: true };
  const admitted = admitFork(runtime, plan, context.caller);
  scope.defer(() => admitted.capacity[Symbol.dispose]());
  const draft = scope.use(
    await runtime.store.draft(tag, { replace: false, announce: { branchedFrom: sandbox.id } }),
  );
  const work: Work = { sandbox, mode, entry, draft, askedAt, signal };
  // Not cancelled by the end of the sandbox: the snapshot outlives it.
  const captured = await sandbox.exclusively(signal, () => capture(runtime, request, work));
  scope.defer(() => captured.instant[Symbol.asyncDispose]());
  scope.defer(() => captured.base[Symbol.asyncDispose]());
  void collapseIfLong(runtime, sandbox, source);
  if (!request.wait) {
    finishInBackground(runtime, work, captured, scope.keep());
    return {
      ...describeOpen(runtime, entry),
      ...(await commonFields(work, captured, shortMs)),
      children: [],
    };
  }
  const snapshot = await write(runtime, work, captured);
  const [facts, size] = await Promise.all([
    commonFields(work, captured, clockMs),
    captured.base.mode === "full" ? undefined : physicalBytes(snapshotFile(snapshot, "layer")),
  ]);
  const totalMs = round(performance.now() - askedAt);
  log.info({ event: "sandbox.branch", outcome: "ok", sandbox: sandbox.id, tag, ...facts, totalMs });
  const described = await describeSnapshot(runtime, snapshot);
  entry[Symbol.dispose]();
  return {
    ...described,
    ...facts,
    total_ms: totalMs,
    ...(size !== undefined && { diff_physical_bytes: size }),
    children: await forkOrRemove(runtime, { ...admitted, snapshot }, { ...context, id: request.id }),
  };
}

/** The caller has its response; the list of snapshots shows the result. Closing the runtime waits for it. */
function finishInBackground(
  runtime: Pick<Runtime, "compaction" | "engine" | "log" | "store" | "work">,
  work: Work,
  captured: Captured,
  scope: Scope,
): void {
  const done = runtime.work.whileOpen(undefined, async (signal) => {
    await using _scope = scope;
    try {
      await write(runtime, { ...work, signal }, captured);
    } catch (error) {
      await recordFailure(runtime, work, error);
    }
  });
  // If the runtime closed in between, the work did not begin.
  done.catch(() => scope[Symbol.asyncDispose]().catch(() => undefined));
}

/** The caller holds the lock of the sandbox. The source runs again when this returns, and when it throws. */
async function capture(
  runtime: Pick<Runtime, "config" | "images" | "log" | "metrics" | "store">,
  request: BranchRequest,
  { sandbox, mode, draft, entry, askedAt, signal }: Work,
): Promise<Captured> {
  signal?.throwIfAborted();
  const source = sandbox.current;
  await using scope = new Scope();
  const base = scope.use(await pinBase(runtime, { sandbox, source, draft, mode }));
  refuseOtherParent(request, base);
  entry.mode = base.mode;
  if (base.mode !== "full" && base.parent) entry.parentTag = base.parent.tag;
  entry.memoryMib = base.own.manifest.machine.memory_mib;
  entry.vcpus = base.own.manifest.machine.vcpus;
  // A clock that was behind before is not part of this stall.
  void correctClock(source.agent);
  const instant = scope.use(
    await takeInstant(runtime, source, draft, { direct: base.mode === "diff", signal }),
  );
  await instant.resume();
  const resumedMs = performance.now() - askedAt;
  sandbox.countBranch();
  runtime.metrics.branchPauseSeconds.observe(instant.pauseMs / 1000);
  entry.writing();
  await instant.copyDisks(draft);
  scope.keep();
  return { base, source, instant, pauseMs: instant.pauseMs, resumedMs };
}

async function write(
  runtime: Pick<Runtime, "compaction" | "engine" | "log" | "store">,
  work: Work,
  captured: Captured,
): Promise<StoredSnapshot> {
  const { draft, sandbox, signal } = work;
  const { base, source, instant, pauseMs } = captured;
  const request = { sandbox, source, base, instant, pauseMs, signal };
  await writeInstant(runtime, draft, request).catch((error: unknown) => {
    work.entry.failed(toAppError(error).message);
    throw error;
  });
  if (base.mode !== "full" && base.parent) await requireParent(runtime, base.parent);
  const snapshot = await draft.publish();
  runtime.compaction.consider(snapshot);
  work.entry.published();
  return snapshot;
}

function modeOf({ mode, diff }: BranchRequest): BranchMode {
  return mode ?? (diff ? "diff" : "live");
}

function refuseOtherParent({ parent_tag: asked }: BranchRequest, { parent }: LayerBase): void {
  if (asked === undefined || asked === parent?.tag) return;
  const runsFrom = parent?.tag ?? "a saved state";
  throw new AppError(
    "invalid_request",
    `Invalid request: parent_tag: the sandbox runs from "${runsFrom}", so its branch cannot be a layer over "${asked}"`,
    { details: { parent_tag: asked, runs_from: runsFrom }, remedy: advice("Leave parent_tag out.") },
  );
}

function automaticTag(id: string): string {
  const short = id.slice("sb-".length, "sb-".length + 8);
  return `branch-${short}-${Math.floor(Date.now() / 1000)}-${randomBytes(2).toString("hex")}`;
}

type CommonFields = Pick<
  BranchResult,
  "branched_from" | "mode" | "pause_ms" | "stall_ms" | "resumed_ms" | "diff_logical_bytes" | "timings_ms"
>;

async function commonFields(work: Work, captured: Captured, waitMs: number): Promise<CommonFields> {
  const stall = await within(captured.instant.stall, waitMs);
  return {
    branched_from: work.sandbox.id,
    mode: captured.base.mode,
    pause_ms: round(captured.pauseMs),
    ...(stall !== undefined && { stall_ms: round(stall) }),
    resumed_ms: round(captured.resumedMs),
    diff_logical_bytes: captured.instant.pages * pageBytes,
    timings_ms: { ...captured.instant.timings },
  };
}

/** The caller no longer waits, so the failure is recorded for the list of snapshots. */
async function recordFailure(
  runtime: Pick<Runtime, "log" | "store">,
  { entry, sandbox }: Work,
  error: unknown,
): Promise<void> {
  const { tag } = entry;
  const reason = toAppError(error).message;
  entry.failed(reason);
  runtime.log.error({ event: "sandbox.branch", outcome: "failed", sandbox: sandbox.id, tag, error });
  await runtime.store.fail(tag, reason, sandbox.id);
}

/** If the caller goes away, neither children nor snapshot are left. */
async function forkOrRemove(
  runtime: Runtime,
  admitted: AdmittedFork,
  context: Context & { id: string },
): Promise<ForkEntry[]> {
  if (admitted.request.n === 0) return [];
  try {
    return await forkChildren(runtime, admitted, context);
  } catch (error) {
    if (context.signal?.aborted) {
      const { tag } = admitted.snapshot;
      await runtime.pool.drop(tag);
      await runtime.store.remove(tag);
      runtime.events.snapshot("snapshot.removed", tag, { sandbox: context.id });
    }
    throw error;
  }
}
