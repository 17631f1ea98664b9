/** A sandbox gets another machine: from its saved state, or from an earlier snapshot of its lineage. */
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { removeSavedState } from "../capture/save-sandbox.ts";
import type { Context } from "../context.ts";
import { replaceMachine } from "../launch/replace-machine.ts";
import { resumeSandbox } from "../launch/resume-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";

export function resume(runtime: Runtime, { id }: { id: string }, context: Context): Promise<SandboxInfo> {
  return resumeSandbox(runtime, runtime.registry.get(id), context);
}

export function rewind(
  runtime: Runtime,
  { id, to }: ParsedOf<"rewind">,
  { signal, log, caller }: Context,
): Promise<SandboxInfo> {
  const sandbox = runtime.registry.get(id);
  return runtime.work.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      const snapshot = await usableSnapshot(runtime, to);
      await requireLineage(runtime, sandbox, snapshot);
      // The saved state is newer than where the sandbox will be.
      const ahead = sandbox.saved;
      await replaceMachine(runtime, sandbox, { snapshot, signal: either, caller, rewindTo: to });
      runtime.registry.schedule(sandbox);
      if (ahead) await removeSavedState(runtime, ahead);
      runtime.events.sandbox("sandbox.rewound", sandbox.info());
      log.info({ event: "sandbox.rewind", outcome: "ok", sandbox: id, to });
      return sandbox.info();
    }),
  );
}

/** Refuses a snapshot that is neither an ancestor of the sandbox nor a branch of it. */
async function requireLineage(
  runtime: Pick<Runtime, "store">,
  sandbox: Sandbox,
  target: StoredSnapshot,
): Promise<void> {
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
