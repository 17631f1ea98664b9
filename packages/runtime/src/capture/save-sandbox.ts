/**
 * Saves a sandbox to disk and ends its machine. The state that was saved before is removed only when the new
 * one is published and recorded, so a failure leaves the sandbox as it was.
 */
import { AppError, type SandboxInfo } from "@forkd/contract";
import { removeTree } from "@forkd/base";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import type { SavedState } from "../sandbox/facts.ts";
import { readRecord } from "../sandbox/record.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { visitedBy } from "../snapshots/visited.ts";
import { pinBase } from "./layer-base.ts";
import { takeInstant } from "./take-instant.ts";
import { writeInstant } from "./write-instant.ts";

type PauseContext = Pick<Context, "signal" | "log"> & { unless?: () => boolean };

/** Does nothing if the sandbox is paused, or if `unless()` is true once its lock is held. */
export function pauseSandbox(
  runtime: Runtime,
  sandbox: Sandbox,
  { signal, log, unless = () => false }: PauseContext,
): Promise<SandboxInfo> {
  return runtime.work.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      if (sandbox.state === "paused" || unless()) return sandbox.info();
      const startedAt = performance.now();
      await saveSandbox(runtime, sandbox, either);
      runtime.registry.schedule(sandbox);
      runtime.events.sandbox("sandbox.paused", sandbox.info());
      log.info({
        event: "sandbox.pause",
        outcome: "ok",
        sandbox: sandbox.id,
        durationMs: Math.round(performance.now() - startedAt),
      });
      return sandbox.info();
    }),
  );
}

/** The caller holds the lock of the sandbox. */
export async function saveSandbox(
  runtime: Pick<Runtime, "config" | "engine" | "images" | "log" | "store">,
  sandbox: Sandbox,
  signal: AbortSignal,
): Promise<void> {
  const source = sandbox.current;
  const before = sandbox.saved;
  await sandbox.whilePausing(async () => {
    const name = `state-${source.number}`;
    await using draft = await runtime.store.draftIn(sandbox.home.dir, name, sandbox.id, { replace: true });
    const base = await pinBase(runtime, { sandbox, source, draft, mode: "diff" });
    await using _base = base;
    // The machine continues only if something fails, so a short pause is not worth the memory.
    await using instant = await takeInstant(runtime, source, draft, { direct: base.mode !== "full", signal });
    await instant.copyDisks(draft);
    await writeInstant(runtime, draft, {
      sandbox,
      source,
      base,
      instant,
      pauseMs: instant.pauseMs,
      signal,
    });
    sandbox.requireAlive();
    const saved: SavedState = { snapshot: await draft.publish(), savedAt: Date.now() / 1000 };
    // A state with all of its memory has no parents, so the sandbox remembers where it came from.
    const visited = base.mode === "full" ? await visitedBy(runtime, sandbox) : sandbox.visited;
    try {
      await sandbox.persist({ machine: undefined, saved, visited });
      sandbox.requireAlive();
    } catch (error) {
      // The sandbox keeps running. Free the space: the disk may be full.
      const record = await readRecord(sandbox.home).catch(() => undefined);
      if (record?.saved?.name !== name) await removeTree(saved.snapshot.dir);
      throw error;
    }
    const machine = sandbox.markPaused(saved, visited);
    // Ends before the instant is disposed, which would resume it.
    await machine?.end(
      new AppError("sandbox_paused", `${sandbox.id} was paused, with what ran in it`, {
        details: { id: sandbox.id },
        remedy: { action: "resume", id: sandbox.id },
      }),
    );
  });
  if (before) await removeSavedState(runtime, before);
}

/** The sandbox no longer needs it. If it cannot be removed now, the next daemon removes it. */
export async function removeSavedState(
  runtime: Pick<Runtime, "log" | "store">,
  { snapshot }: SavedState,
): Promise<void> {
  try {
    await removeTree(snapshot.dir);
    await runtime.store.discardMemory(snapshot);
  } catch (error) {
    runtime.log.warn({ event: "state.remove", sandbox: snapshot.tag, error });
  }
}
