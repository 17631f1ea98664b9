/** A sandbox gets another machine: from its saved state, or from an earlier snapshot of its lineage. */
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { removeSavedState } from "../capture/save-sandbox.ts";
import type { Context } from "../context.ts";
import { replaceMachine, type Replacement } from "../launch/replace-machine.ts";
import { resumeSandbox } from "../launch/resume-sandbox.ts";
import { reviveSandbox } from "../launch/revive-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { lastAttached } from "../sandbox/states.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";
import { visitedBy } from "../snapshots/visited.ts";

export function resume(runtime: Runtime, { id }: { id: string }, context: Context): Promise<SandboxInfo> {
  return resumeSandbox(runtime, runtime.registry.get(id), context);
}

export function rewind(
  runtime: Runtime,
  { id, to }: ParsedOf<"rewind">,
  { signal, log, caller }: Context,
): Promise<SandboxInfo> {
  const found = runtime.registry.get(id);
  return runtime.work.whileOpen(signal, async (open) => {
    const snapshot = await usableSnapshot(runtime, to);
    const sandbox =
      found.status.kind === "dead"
        ? await rewindDead(runtime, found, { snapshot, signal: open, caller, rewindTo: to })
        : await rewindLive(runtime, found, { snapshot, signal: open, caller, rewindTo: to });
    runtime.registry.schedule(sandbox);
    runtime.events.sandbox("sandbox.rewound", sandbox.info());
    log.info({ event: "sandbox.rewind", outcome: "ok", sandbox: id, to });
    return sandbox.info();
  });
}

type Rewind = Replacement & { rewindTo: string };

function rewindLive(runtime: Runtime, sandbox: Sandbox, rewind: Rewind): Promise<Sandbox> {
  return sandbox.exclusively(rewind.signal, async (signal) => {
    const visited = await requireLineage(runtime, sandbox, rewind.snapshot);
    // The saved state is newer than where the sandbox will be.
    const ahead = sandbox.saved;
    await replaceMachine(runtime, sandbox, { ...rewind, signal, visited });
    if (ahead) await removeSavedState(runtime, ahead);
    return sandbox;
  });
}

async function rewindDead(runtime: Runtime, dead: Sandbox, rewind: Rewind): Promise<Sandbox> {
  const visited = await requireLineage(runtime, dead, rewind.snapshot);
  return reviveSandbox(runtime, dead, { ...rewind, visited });
}

/** Refuses a snapshot that is neither a branch of the sandbox nor one that it came from. Returns the latter. */
async function requireLineage(
  runtime: Pick<Runtime, "store">,
  sandbox: Sandbox,
  target: StoredSnapshot,
): Promise<string[]> {
  const { origin } = target.manifest;
  const visited = await visitedBy(runtime, sandbox);
  if (origin.kind === "branch" && origin.sandbox === sandbox.id) return visited;
  if (visited.includes(target.id)) return visited;
  // A workspace that has never run under this daemon and was not saved knows only the tag.
  const hasStart = (lastAttached(sandbox.status) ?? sandbox.saved) !== undefined;
  if (!hasStart && target.tag === sandbox.snapshotTag) return visited;
  const start = sandbox.machineAtWork?.base ?? sandbox.saved?.snapshot;
  const chain = start ? await runtime.store.chain(start) : [];
  throw new AppError(
    "wrong_state",
    `Cannot rewind ${sandbox.id} to "${target.tag}": it is neither an ancestor of the sandbox nor a branch of it, and the sandbox has never been there`,
    {
      details: { id: sandbox.id, to: target.tag, ancestors: chain.map(({ tag }) => tag) },
      remedy: { action: "fork_another", tag: target.tag },
    },
  );
}
