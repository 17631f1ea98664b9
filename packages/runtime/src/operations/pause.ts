/**
 * A sandbox to disk and back, with the same id; and back to an earlier snapshot of its lineage.
 *
 * The state that was saved before is removed only when the new one stands; the machine that was there before ends only when the
 * new one answers. So whatever fails, the sandbox is as it was.
 */
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import { removeTree } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import { collapseIfLong } from "../capture/disk-chain.ts";
import { requireCompatible } from "../snapshots/compatibility.ts";
import type { Context } from "../context.ts";
import { memoryShare, type Reservation } from "../admission/admission.ts";
import { prepareMachine, startMachine } from "../launch/launch.ts";
import { requireEnforceable } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";
import { ownDiskBytes } from "../admission/disk-usage.ts";
import { childEnv, type SavedState } from "../sandbox/facts.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { readRecord, type RecordState } from "../sandbox/record.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { takeInstant } from "../capture/take-instant.ts";
import { pinBase, writeInstant } from "../capture/write-instant.ts";

/** A paused sandbox stays as it is, and so does one that `unless` excuses when its turn has come. */
export function pause(
  runtime: Runtime,
  { id }: { id: string },
  { signal, log }: Context,
  unless: () => boolean = () => false,
): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(id);
  return runtime.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      if (sandbox.state === "paused" || unless()) return sandbox.info();
      const startedAt = performance.now();
      await save(runtime, sandbox, either);
      runtime.registry.schedule(sandbox);
      runtime.events.sandbox("sandbox.paused", sandbox.info());
      log.info({
        event: "sandbox.pause",
        outcome: "ok",
        sandbox: id,
        durationMs: Math.round(performance.now() - startedAt),
      });
      return sandbox.info();
    }),
  );
}

/** Under the sandbox's lock. */
export async function save(runtime: Runtime, sandbox: Sandbox, signal: AbortSignal): Promise<void> {
  const source = sandbox.current;
  const before = sandbox.saved;
  await sandbox.whilePausing(async () => {
    const name = `state-${source.number}`;
    await using draft = await runtime.store.draftIn(sandbox.home.dir, name, sandbox.id, { replace: true });
    const base = await pinBase(runtime, { sandbox, source, draft, mode: "diff" });
    await using _base = base;
    // The machine does not go on unless something fails, so there is no hurry that would be worth the memory.
    await using instant = await takeInstant(runtime, source, draft, { direct: true, signal });
    await instant.copyDisks(draft);
    await writeInstant(runtime, draft, {
      sandbox,
      source,
      base,
      instant,
      mode: "diff",
      pauseMs: instant.pauseMs,
      flat: false,
      signal,
    });
    sandbox.requireAlive();
    const saved: SavedState = { snapshot: await draft.publish(), savedAt: Date.now() / 1000 };
    try {
      await sandbox.persist({ machine: undefined, saved });
      sandbox.requireAlive();
    } catch (error) {
      // The sandbox runs on, and where the record could not be written there may be no room for what nobody needs.
      const record = await readRecord(sandbox.home).catch(() => undefined);
      if (record?.saved?.name !== name) await removeTree(saved.snapshot.dir);
      throw error;
    }
    sandbox.saved = saved;
    const machine = sandbox.leave();
    // Ended before the instant is let go of, which would let it run.
    await machine?.end(
      new AppError("sandbox_paused", `${sandbox.id} was paused, with what ran in it`, {
        details: { id: sandbox.id },
        remedy: { action: "resume", id: sandbox.id },
      }),
    );
  });
  if (before) await removeState(runtime, before);
}

/** One that cannot be removed now is when the next daemon begins; the sandbox does without it already. */

async function removeState(runtime: Runtime, { snapshot }: SavedState): Promise<void> {
  try {
    await removeTree(snapshot.dir);
    await runtime.store.discardFlat(snapshot);
  } catch (error) {
    runtime.log.warn({ event: "state.remove", sandbox: snapshot.tag, error });
  }
}

/** A sandbox that runs stays as it is. */
export function resume(
  runtime: Runtime,
  { id }: { id: string },
  { signal, log, caller }: Context,
): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(id);
  return runtime.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      if (sandbox.state === "running") return sandbox.info();
      if (sandbox.unusable) throw sandbox.unusable;
      const snapshot = sandbox.saved?.snapshot ?? (await runtime.snapshot(sandbox.snapshotTag));
      await become(runtime, sandbox, snapshot, {}, { signal: either, caller });
      void collapseIfLong(runtime, sandbox, sandbox.current);
      runtime.registry.schedule(sandbox);
      runtime.events.sandbox("sandbox.resumed", sandbox.info());
      log.info({ event: "sandbox.resume", outcome: "ok", sandbox: id });
      return sandbox.info();
    }),
  );
}

export function rewind(
  runtime: Runtime,
  { id, to }: ParsedOf<"rewind">,
  { signal, log, caller }: Context,
): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(id);
  return runtime.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      const snapshot = await runtime.snapshot(to);
      await requireLineage(runtime, sandbox, snapshot);
      const ahead = sandbox.saved;
      // What was saved lies ahead of where the sandbox is now.
      await become(runtime, sandbox, snapshot, { tag: to, saved: undefined }, { signal: either, caller });
      sandbox.snapshotTag = to;
      sandbox.saved = undefined;
      runtime.registry.schedule(sandbox);
      if (ahead) await removeState(runtime, ahead);
      runtime.events.sandbox("sandbox.rewound", sandbox.info());
      log.info({ event: "sandbox.rewind", outcome: "ok", sandbox: id, to });
      return sandbox.info();
    }),
  );
}

/**
 * Gives the sandbox a machine that goes on from the snapshot; the one it has ends when that answers and the record names it. What
 * else changes with it goes into the same record.
 */
async function become(
  runtime: Runtime,
  sandbox: Sandbox,
  snapshot: StoredSnapshot,
  changed: Partial<RecordState>,
  { signal, caller }: { signal: AbortSignal; caller: Context["caller"] },
): Promise<void> {
  const askedAt = performance.now();
  requireCompatible(snapshot.tag, snapshot.manifest, runtime.host);
  await runtime.store.verify(snapshot, { signal });
  const { limits } = sandbox.facts;
  requireEnforceable(runtime, limits);
  const diskUsedBytes = limits?.disk_mib === undefined ? 0 : await ownDiskBytes(runtime, sandbox, snapshot);
  using _place = admitMachine(runtime, sandbox, snapshot, caller);
  using _start = await runtime.starts.take({ caller: caller?.name ?? "", signal });
  const place = { id: sandbox.id, number: sandbox.nextNumber(), snapshot };
  const prepared = await prepareMachine(runtime, place, signal);
  const next = await startMachine(runtime, prepared, {
    identity: sandbox.facts.identity,
    env: childEnv(snapshot.manifest.env, sandbox.facts),
    limits,
    diskUsedBytes,
    askedAt,
    pooled: false,
  });
  const expiresAt = sandbox.nextExpiry();
  let before: SandboxMachine | undefined;
  try {
    await sandbox.persist({ ...changed, machine: next.facts, expiresAt });
    before = sandbox.enter(next, expiresAt);
  } catch (error) {
    await next[Symbol.asyncDispose]();
    throw error;
  }
  const reason = new AppError("wrong_state", `${sandbox.id} was taken back to "${snapshot.tag}"`, {
    details: { id: sandbox.id, to: snapshot.tag },
  });
  // The sandbox goes on with the next one. What cannot be removed of this one now is found as a stray.
  await before
    ?.end(reason)
    .catch((error: unknown) =>
      runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, number: before.number, error }),
    );
}

/** Room for the next machine of a sandbox; one that has a machine has room already. */
function admitMachine(
  runtime: Runtime,
  sandbox: Sandbox,
  { id, manifest }: StoredSnapshot,
  caller: Context["caller"],
): Reservation {
  const { limits, owner } = sandbox.facts;
  return runtime.admission.admit({
    what: `resume ${sandbox.id}`,
    n: sandbox.state === "running" ? 0 : 1,
    memoryMib: memoryShare(manifest.machine.memory_mib, limits?.memory_mib),
    expectMib: runtime.memoryEstimates.of(id),
    // Its disk counts while it is paused.
    diskMib: 0,
    caller: caller?.name === owner ? caller : undefined,
    isNew: false,
  });
}

/** The snapshot is an ancestor of the sandbox, or was taken of it. */
async function requireLineage(runtime: Runtime, sandbox: Sandbox, target: StoredSnapshot): Promise<void> {
  const { origin } = target.manifest;
  if (origin.kind === "branch" && origin.sandbox === sandbox.id) return;
  const start = sandbox.machineAtWork?.base ?? sandbox.saved?.snapshot;
  const chain = start ? await runtime.store.chain(start) : [];
  if (chain.some(({ id }) => id === target.id) || (!start && target.tag === sandbox.snapshotTag)) return;
  throw new AppError(
    "wrong_state",
    `Cannot rewind ${sandbox.id} to "${target.tag}": it is neither an ancestor of the sandbox nor a branch of it`,
    {
      details: { id: sandbox.id, to: target.tag, ancestors: chain.map(({ tag }) => tag) },
      remedy: { action: "fork_another", tag: target.tag },
    },
  );
}
