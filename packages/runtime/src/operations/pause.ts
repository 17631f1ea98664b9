/**
 * Pause and resume: a sandbox to disk and back, with the same id. Rewind: back to an earlier snapshot of its
 * lineage.
 *
 * The previous saved state is removed only after the new one is on disk, and the previous machine ends only
 * after the new one answers. So if anything fails, the sandbox is as it was.
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
import { readRecord } from "../sandbox/record.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { takeInstant } from "../capture/take-instant.ts";
import { pinBase, writeInstant } from "../capture/write-instant.ts";

/** Does nothing if the sandbox is paused, or if `unless()` is true once the lock is held. */
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
    // The machine does not run again unless something fails, so writing to disk directly saves memory and
    // delays nobody.
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
      // The sandbox keeps running. The disk may be full, so do not leave a state behind that no record names.
      const record = await readRecord(sandbox.home).catch(() => undefined);
      if (record?.saved?.name !== name) await removeTree(saved.snapshot.dir);
      throw error;
    }
    const machine = sandbox.markPaused(saved);
    // Ended before the instant is disposed, which would let it run.
    await machine?.end(
      new AppError(
        "sandbox_paused",
        `${sandbox.id} was paused. What ran in it goes on after forkd resume ${sandbox.id}`,
        { details: { id: sandbox.id } },
      ),
    );
  });
  if (before) await removeState(runtime, before);
}

/** A failure is only logged: no record names the state any more, so the next daemon removes it. */
async function removeState(runtime: Runtime, { snapshot }: SavedState): Promise<void> {
  try {
    await removeTree(snapshot.dir);
    await runtime.store.discardFlat(snapshot);
  } catch (error) {
    runtime.log.warn({ event: "state.remove", sandbox: snapshot.tag, error });
  }
}

/** Does nothing if the sandbox is running. */
export function resume(
  runtime: Runtime,
  { id }: { id: string },
  { signal, log, caller }: Context,
): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(id);
  return runtime.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      if (sandbox.state === "running") return sandbox.info();
      sandbox.requireResumable();
      const snapshot = sandbox.saved?.snapshot ?? (await runtime.snapshot(sandbox.snapshotTag));
      await replaceMachine(runtime, sandbox, snapshot, { signal: either, caller });
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
      await replaceMachine(runtime, sandbox, snapshot, { signal: either, caller, rewindTo: to });
      runtime.registry.schedule(sandbox);
      if (ahead) await removeState(runtime, ahead);
      runtime.events.sandbox("sandbox.rewound", sandbox.info());
      log.info({ event: "sandbox.rewind", outcome: "ok", sandbox: id, to });
      return sandbox.info();
    }),
  );
}

/**
 * Gives the sandbox a machine that starts from the snapshot. The one that it has ends when the new one
 * answers and the record names it. After a rewind the saved state is not valid any more: it is from after the
 * snapshot.
 */
async function replaceMachine(
  runtime: Runtime,
  sandbox: Sandbox,
  snapshot: StoredSnapshot,
  { signal, caller, rewindTo }: { signal: AbortSignal; caller: Context["caller"]; rewindTo?: string },
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
    const rewound = rewindTo === undefined ? {} : { tag: rewindTo, saved: undefined };
    await sandbox.persist({ ...rewound, machine: next.facts, expiresAt });
    before = sandbox.attachMachine(next, { expiresAt, rewoundTo: rewindTo });
  } catch (error) {
    await next[Symbol.asyncDispose]();
    throw error;
  }
  const reason = new AppError("wrong_state", `${sandbox.id} was taken back to "${snapshot.tag}"`, {
    details: { id: sandbox.id, to: snapshot.tag },
  });
  // The sandbox has its next machine. The next daemon removes what cannot be removed of this one now.
  await before
    ?.end(reason)
    .catch((error: unknown) =>
      runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, number: before.number, error }),
    );
}

/** Reserves capacity for the next machine of a sandbox; one that has a machine has it already. */
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
    // A paused sandbox already counts with its disk.
    diskMib: 0,
    caller: caller?.name === owner ? caller : undefined,
    isNew: false,
  });
}

/** The snapshot must be an ancestor of the sandbox or a branch of it. */
async function requireLineage(runtime: Runtime, sandbox: Sandbox, target: StoredSnapshot): Promise<void> {
  const { origin } = target.manifest;
  if (origin.kind === "branch" && origin.sandbox === sandbox.id) return;
  const start = sandbox.machineAtWork?.base ?? sandbox.saved?.snapshot;
  const chain = start ? await runtime.store.chain(start) : [];
  if (chain.some(({ id }) => id === target.id) || (!start && target.tag === sandbox.snapshotTag)) return;
  throw new AppError(
    "wrong_state",
    `Cannot rewind ${sandbox.id} to "${target.tag}": it is neither an ancestor of the sandbox nor a branch of it. forkd tree shows the lineage; forkd fork --tag ${target.tag} makes a new sandbox`,
    { details: { id: sandbox.id, to: target.tag, ancestors: chain.map(({ tag }) => tag) } },
  );
}
