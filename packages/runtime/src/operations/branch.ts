/**
 * BRANCH: a running sandbox becomes a snapshot, and goes on.
 *
 * The source is paused only inside takeInstant(); everything that is slow happens after it runs again. A snapshot is usable only
 * when it is published; until then its tag is in the book of open branches.
 */
import { randomBytes } from "node:crypto";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import {
  AppError,
  toAppError,
  type BranchMode,
  type BranchRequest,
  type BranchResult,
  type ForkEntry,
  type SnapshotInfo,
} from "@forkd/contract";
import { isErrno, removeTree, withDeadline } from "@forkd/base";
import { snapshotFile, type Draft, type StoredSnapshot } from "@forkd/store";
import { collapseIfLong } from "../collapse-disk.ts";
import type { Context } from "../context.ts";
import { trimImages } from "../lineage.ts";
import type { Runtime } from "../open-runtime.ts";
import type { Incarnation } from "../sandbox/incarnation.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { describeSnapshot } from "../snapshot-info.ts";
import { round, takeInstant, type Instant } from "../take-instant.ts";
import { wallClock } from "../wall-clock.ts";
import { layerBase, writeInstant, type LayerBase } from "../write-instant.ts";
import { forkSnapshot } from "./fork.ts";

const pageBytes = 4096;
const blockBytes = 512;
const clockMs = 1000;
const clockAttempts = 3;
const soonMs = 5;
/** how long an answer that need not wait for the snapshot waits for the guest's word about its stall */
const shortMs = 3;

export function branch(runtime: Runtime, request: BranchRequest, context: Context): Promise<BranchResult> {
  return runtime.whileOpen(context.signal, (signal) =>
    branchWhileOpen(runtime, request, { signal, log: context.log }),
  );
}

/** One branch from the request to the published snapshot. */
type Work = {
  sandbox: Sandbox;
  mode: BranchMode;
  tag: string;
  draft: Draft;
  askedAt: number;
  signal: AbortSignal | undefined;
};
type Captured = {
  base: LayerBase;
  source: Incarnation;
  instant: Instant;
  pauseMs: number;
  resumedMs: number;
  stall: Promise<number | undefined>;
};

async function branchWhileOpen(
  runtime: Runtime,
  request: BranchRequest,
  { signal, log }: Context,
): Promise<BranchResult> {
  const askedAt = performance.now();
  const sandbox = runtime.registry.get(request.id);
  const source = sandbox.current;
  refuseOtherParent(request, source);
  const mode = modeOf(request);
  const tag = request.tag ?? automaticTag(sandbox.id);
  const entry = runtime.branches.enter({ tag, sandbox: sandbox.id, mode, startedAt: Date.now() / 1000 });
  let draft: Draft;
  let captured: Captured;
  try {
    draft = await runtime.store.draft(tag, { replace: false, announce: { branchedFrom: sandbox.id } });
    const work = { sandbox, mode, tag, draft, askedAt, signal };
    try {
      captured = await sandbox.lifecycle.run(() => capture(runtime, work));
    } catch (error) {
      await draft[Symbol.asyncDispose]();
      throw error;
    }
  } catch (error) {
    entry[Symbol.dispose]();
    throw error;
  }
  const work: Work = { sandbox, mode, tag, draft, askedAt, signal: request.wait ? signal : undefined };
  const writing = runtime
    .whileOpen(work.signal, (open) => write(runtime, { ...work, signal: open }, captured))
    .catch(async (error: unknown) => {
      // The tag is in the book until the list tells what became of it.
      if (!request.wait) await noteFailure(runtime, work, error);
      throw error;
    })
    .finally(() => entry[Symbol.dispose]());
  void collapseIfLong(runtime, sandbox, source);
  if (!request.wait) {
    writing.catch(() => undefined);
    return {
      ...describeWriting(runtime, work, captured),
      ...(await commonFields(work, captured, shortMs)),
      children: [],
    };
  }
  const snapshot = await writing;
  const [facts, size] = await Promise.all([
    commonFields(work, captured, clockMs),
    mode === "full" ? undefined : physicalSize(snapshotFile(snapshot, "layer")),
  ]);
  const totalMs = round(performance.now() - askedAt);
  log.info({ event: "sandbox.branch", outcome: "ok", sandbox: sandbox.id, tag, ...facts, totalMs });
  return {
    ...(await describeSnapshot(runtime, snapshot)),
    ...facts,
    total_ms: totalMs,
    ...(size !== undefined && { diff_physical_bytes: size }),
    children: await forkChildren(runtime, request, snapshot, { signal, log }),
  };
}

/** Under the sandbox's lock. The source runs again when it returns, and when it throws. */
async function capture(runtime: Runtime, { sandbox, mode, draft, askedAt, signal }: Work): Promise<Captured> {
  signal?.throwIfAborted();
  const source = sandbox.current;
  const base = await layerBase(runtime, sandbox, source, mode);
  // Whatever the clock lags already is no part of this stall.
  void correctClock(source);
  const instant = await takeInstant(runtime, source, draft, { direct: mode === "diff", signal });
  try {
    await instant.resume();
    const resumedAt = performance.now();
    sandbox.branchCount++;
    const stall = correctClock(source);
    return { base, source, instant, pauseMs: instant.pauseMs, resumedMs: resumedAt - askedAt, stall };
  } catch (error) {
    await instant[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * While a machine stands still so does its clock. Gives what it lost, in milliseconds, if the guest tells. A guest that is busy
 * takes the time late, so it is told again until it takes it soon.
 */
async function correctClock({ agent }: Incarnation): Promise<number | undefined> {
  let lostMs: number | undefined;
  for (let attempt = 1; attempt <= clockAttempts; attempt++) {
    const sentAt = performance.now();
    let sentNs = 0n;
    try {
      const { guestBeforeNs } = await withDeadline(
        agent.setClock(() => (sentNs = wallClock())),
        clockMs,
        () => new AppError("agent_unreachable", "The guest did not set its clock in time"),
      );
      const tripMs = performance.now() - sentAt;
      // The guest looked at its clock somewhere between the question and the answer.
      lostMs ??= Math.max(0, round(Number(sentNs - guestBeforeNs) / 1e6 + tripMs / 2));
      if (tripMs < soonMs) break;
    } catch {
      // A guest that does not answer now has a clock that lags; it is no reason to give up the branch.
      break;
    }
  }
  return lostMs;
}

async function write(runtime: Runtime, work: Work, captured: Captured): Promise<StoredSnapshot> {
  const { draft, sandbox, mode, signal } = work;
  const { base, source, instant, pauseMs } = captured;
  await using _draft = draft;
  let flat: string | undefined;
  try {
    const written = await writeInstant(runtime, draft, {
      sandbox,
      source,
      base,
      instant,
      mode,
      pauseMs,
      flat: true,
      signal,
    });
    flat = written.flat;
    const snapshot = await draft.publish();
    if (flat !== undefined) await adopt(runtime, snapshot, flat);
    return snapshot;
  } finally {
    await instant[Symbol.asyncDispose]();
    if (flat !== undefined) await removeTree(flat);
  }
}

/** The snapshot stands; without the image a first child would only wait for it to be made again. */
async function adopt(runtime: Runtime, snapshot: StoredSnapshot, flat: string): Promise<void> {
  try {
    await runtime.store.adoptFlat(snapshot, flat);
    await trimImages(runtime, snapshot);
  } catch (error) {
    runtime.log.warn({ event: "branch.adopt", tag: snapshot.tag, error });
  }
}

function modeOf({ mode, diff }: BranchRequest): BranchMode {
  return mode ?? (diff ? "diff" : "live");
}

function refuseOtherParent({ parent_tag: asked }: BranchRequest, source: Incarnation): void {
  if (asked === undefined || asked === source.base.tag) return;
  throw new AppError(
    "invalid_request",
    `Invalid request: parent_tag: the sandbox runs from "${source.base.tag}", so its branch cannot be a layer over "${asked}". Leave parent_tag out`,
    { details: { parent_tag: asked, runs_from: source.base.tag } },
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
  const stall = await Promise.race([
    captured.stall,
    new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), waitMs).unref()),
  ]);
  return {
    branched_from: work.sandbox.id,
    mode: work.mode,
    pause_ms: round(captured.pauseMs),
    ...(stall !== undefined && { stall_ms: stall }),
    resumed_ms: round(captured.resumedMs),
    diff_logical_bytes: captured.instant.pages * pageBytes,
    timings_ms: { ...captured.instant.timings },
  };
}

function describeWriting(runtime: Runtime, { tag }: Work, { base }: Captured): SnapshotInfo {
  const { machine, kernels, recipe } = base.own.manifest;
  return {
    tag,
    dir: join(runtime.store.root, tag),
    created_at_unix: Math.floor(Date.now() / 1000),
    status: "writing",
    bootable: false,
    memory_mib: machine.memory_mib,
    vcpus: machine.vcpus,
    accelerator: machine.accelerator,
    languages: kernels.map(({ language }) => language),
    ...(recipe && { recipe: recipe.name }),
    physical_bytes: 0,
    parent_tag: base.parent.tag,
  };
}

async function physicalSize(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).blocks * blockBytes;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Nobody waits for the snapshot any more: what became of it is told by the list. */
async function noteFailure(runtime: Runtime, { tag, sandbox }: Work, error: unknown): Promise<void> {
  const reason = toAppError(error).message;
  runtime.log.error({ event: "sandbox.branch", outcome: "failed", sandbox: sandbox.id, tag, error });
  await runtime.store.fail(tag, reason, sandbox.id);
}

async function forkChildren(
  runtime: Runtime,
  request: BranchRequest,
  snapshot: StoredSnapshot,
  context: Context,
): Promise<ForkEntry[]> {
  if (request.n === 0) return [];
  return forkSnapshot(runtime, snapshot, { ...request, workspace: undefined }, context);
}
