/**
 * BRANCH: a running sandbox becomes a snapshot, and goes on.
 *
 * The source is paused only inside takeInstant(); everything that is slow happens after it runs again. A snapshot is usable only
 * when it is published; until then its tag is in the book of open branches.
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
import { removeTree, Scope, within } from "@forkd/base";
import { physicalBytes, snapshotFile, type Draft, type StoredSnapshot } from "@forkd/store";
import type { OpenBranch } from "../capture/open-branches.ts";
import { collapseIfLong } from "../capture/disk-chain.ts";
import type { Context } from "../context.ts";
import { clockMs, correctClock } from "../capture/guest-clock.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { SnapshotProgress } from "../capture/snapshot-progress.ts";
import { describeOpen, describeSnapshot } from "../snapshots/describe.ts";
import { round, takeInstant, type Instant } from "../capture/take-instant.ts";
import { limitsOf } from "../admission/limits.ts";
import { pinBase, writeInstant, type LayerBase } from "../capture/write-instant.ts";
import { admit, forkSnapshot, type Admitted } from "./fork.ts";

const pageBytes = 4096;
/** how long an answer that need not wait for the snapshot waits for the guest's word about its stall */
const shortMs = 3;

export function branch(runtime: Runtime, request: BranchRequest, context: Context): Promise<BranchResult> {
  return runtime.whileOpen(context.signal, (signal) =>
    branchWhileOpen(runtime, request, { ...context, signal }),
  );
}

/** One branch from the request to the published snapshot. */
type Work = {
  sandbox: Sandbox;
  mode: BranchMode;
  entry: OpenBranch;
  fate: SnapshotProgress;
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

async function branchWhileOpen(
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
  const entry: OpenBranch = { tag, sandbox: sandbox.id, mode, startedAt: Date.now() / 1000 };
  await using scope = new Scope();
  const fate = new SnapshotProgress(runtime.events, tag, sandbox.id);
  scope.defer(() => fate.tell());
  const left = runtime.branches.enter(entry);
  scope.defer(() => left[Symbol.dispose]());
  // The children begin with what the source is, its limits included.
  const limits = request.n === 0 ? undefined : limitsOf(runtime, request, sandbox.facts.limits);
  const admitted = admit(runtime, source.base, request, limits, context.caller);
  scope.defer(() => admitted.places[Symbol.dispose]());
  const draft = scope.use(
    await runtime.store.draft(tag, { replace: false, announce: { branchedFrom: sandbox.id } }),
  );
  const work: Work = { sandbox, mode, entry, fate, draft, askedAt, signal };
  // Not by the signal of the sandbox's end: what was captured outlives it.
  const captured = await sandbox.exclusively(signal, () => capture(runtime, request, work));
  scope.defer(() => captured.instant[Symbol.asyncDispose]());
  scope.defer(() => captured.base[Symbol.asyncDispose]());
  void collapseIfLong(runtime, sandbox, source);
  if (!request.wait) {
    finishAlone(runtime, work, captured, scope.keep());
    return {
      ...describeOpen(runtime, entry),
      ...(await commonFields(work, captured, shortMs)),
      children: [],
    };
  }
  const snapshot = await write(runtime, work, captured);
  const [facts, size] = await Promise.all([
    commonFields(work, captured, clockMs),
    mode === "full" ? undefined : physicalBytes(snapshotFile(snapshot, "layer")),
  ]);
  const totalMs = round(performance.now() - askedAt);
  log.info({ event: "sandbox.branch", outcome: "ok", sandbox: sandbox.id, tag, ...facts, totalMs });
  const described = await describeSnapshot(runtime, snapshot);
  left[Symbol.dispose]();
  fate.tell();
  return {
    ...described,
    ...facts,
    total_ms: totalMs,
    ...(size !== undefined && { diff_physical_bytes: size }),
    children: await forkChildren(runtime, request, snapshot, admitted, context),
  };
}

/** The caller has its answer; what becomes of the snapshot is told by the list. Closing the runtime waits for it. */
function finishAlone(runtime: Runtime, work: Work, captured: Captured, scope: Scope): void {
  const done = runtime.whileOpen(undefined, async (signal) => {
    await using _scope = scope;
    try {
      await write(runtime, { ...work, signal }, captured);
    } catch (error) {
      await noteFailure(runtime, work, error);
    }
  });
  // Where the runtime closed in between, nothing has begun.
  done.catch(() => scope[Symbol.asyncDispose]().catch(() => undefined));
}

/** Under the sandbox's lock. The source runs again when it returns, and when it throws. */
async function capture(
  runtime: Runtime,
  request: BranchRequest,
  { sandbox, mode, draft, entry, fate, askedAt, signal }: Work,
): Promise<Captured> {
  signal?.throwIfAborted();
  const source = sandbox.current;
  await using scope = new Scope();
  const base = scope.use(await pinBase(runtime, { sandbox, source, draft, mode }));
  refuseOtherParent(request, base);
  if (mode !== "full") entry.parentTag = base.parent.tag;
  entry.memoryMib = base.own.manifest.machine.memory_mib;
  entry.vcpus = base.own.manifest.machine.vcpus;
  // Whatever the clock lags already is no part of this stall.
  void correctClock(source.agent);
  const instant = scope.use(await takeInstant(runtime, source, draft, { direct: mode === "diff", signal }));
  await instant.resume();
  const resumedMs = performance.now() - askedAt;
  sandbox.branchCount++;
  runtime.metrics.branchPauseSeconds.observe(instant.pauseMs / 1000);
  fate.writing();
  await instant.copyDisks(draft);
  scope.keep();
  return { base, source, instant, pauseMs: instant.pauseMs, resumedMs };
}

async function write(runtime: Runtime, work: Work, captured: Captured): Promise<StoredSnapshot> {
  const { draft, sandbox, mode, signal } = work;
  const { base, source, instant, pauseMs } = captured;
  const request = { sandbox, source, base, instant, mode, pauseMs, flat: true, signal };
  const flat = await writeInstant(runtime, draft, request).catch((error: unknown) => {
    work.fate.reason = toAppError(error).message;
    throw error;
  });
  try {
    if (mode !== "full") await requireParent(runtime, base);
    const snapshot = await draft.publish();
    if (flat !== undefined) await adopt(runtime, snapshot, flat);
    work.fate.succeeded();
    return snapshot;
  } finally {
    if (flat !== undefined) await removeTree(flat);
  }
}

/** The parent is protected while the branch is under way, but not against force. */
async function requireParent(runtime: Runtime, { parent }: LayerBase): Promise<void> {
  const found = await runtime.store.get(parent.tag).catch(() => undefined);
  if (found?.id === parent.id) return;
  throw new AppError(
    "snapshot_not_found",
    `The branch was given up: its parent "${parent.tag}" was removed or replaced meanwhile`,
    { details: { tag: parent.tag } },
  );
}

/** The snapshot stands; without the image a first child would only wait for it to be made again. */
async function adopt(runtime: Runtime, snapshot: StoredSnapshot, flat: string): Promise<void> {
  try {
    await runtime.store.adoptFlat(snapshot, flat);
  } catch (error) {
    runtime.log.warn({ event: "branch.adopt", tag: snapshot.tag, error });
  }
}

function modeOf({ mode, diff }: BranchRequest): BranchMode {
  return mode ?? (diff ? "diff" : "live");
}

function refuseOtherParent({ parent_tag: asked }: BranchRequest, { parent }: LayerBase): void {
  if (asked === undefined || asked === parent.tag) return;
  throw new AppError(
    "invalid_request",
    `Invalid request: parent_tag: the sandbox runs from "${parent.tag}", so its branch cannot be a layer over "${asked}"`,
    { details: { parent_tag: asked, runs_from: parent.tag }, remedy: advice("Leave parent_tag out.") },
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
    mode: work.mode,
    pause_ms: round(captured.pauseMs),
    ...(stall !== undefined && { stall_ms: round(stall) }),
    resumed_ms: round(captured.resumedMs),
    diff_logical_bytes: captured.instant.pages * pageBytes,
    timings_ms: { ...captured.instant.timings },
  };
}

/** Nobody waits for the snapshot any more: what became of it is told by the list. */
async function noteFailure(runtime: Runtime, { entry, sandbox, fate }: Work, error: unknown): Promise<void> {
  const { tag } = entry;
  const reason = toAppError(error).message;
  fate.reason = reason;
  runtime.log.error({ event: "sandbox.branch", outcome: "failed", sandbox: sandbox.id, tag, error });
  await runtime.store.fail(tag, reason, sandbox.id);
}

/** A caller that goes away in the middle leaves neither children nor snapshot. */
async function forkChildren(
  runtime: Runtime,
  request: BranchRequest,
  snapshot: StoredSnapshot,
  admitted: Admitted,
  context: Context,
): Promise<ForkEntry[]> {
  if (request.n === 0) return [];
  try {
    return await forkSnapshot(runtime, snapshot, request, admitted, context);
  } catch (error) {
    if (context.signal?.aborted) {
      await runtime.pool.drop(snapshot.tag);
      await runtime.store.remove(snapshot.tag);
      runtime.events.snapshot("snapshot.removed", snapshot.tag, { sandbox: request.id });
    }
    throw error;
  }
}
