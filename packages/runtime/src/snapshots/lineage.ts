/** What depends on a snapshot. */
import { AppError, sandboxIdPattern, type Remedy } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";

/** Snapshots, including those being written, and sandboxes whose saved state is a layer over the snapshot. */
export async function dependentsOf(
  runtime: Pick<Runtime, "branches" | "registry" | "store">,
  tag: string,
): Promise<string[]> {
  const saved = runtime.registry
    .all()
    .filter(({ saved: state }) => state?.snapshot.manifest.parent?.tag === tag)
    .map(({ id }) => id);
  const stored = await runtime.store.dependents(tag);
  return [...new Set([...stored, ...runtime.branches.over(tag)]), ...saved];
}

/** Sandboxes among the dependents have to be killed first: removing snapshots does not remove them. */
export function orphanRemedy(tag: string, dependents: readonly string[]): Remedy {
  const ids = dependents.filter((each) => sandboxIdPattern.test(each));
  return ids.length > 0 ? { action: "kill_dependents", ids } : { action: "remove_dependents", tag };
}

/** Layers over a snapshot become unusable when another one takes its tag. */
export async function refuseOrphans(
  runtime: Pick<Runtime, "branches" | "registry" | "store">,
  tag: string,
): Promise<void> {
  const dependents = await dependentsOf(runtime, tag);
  if (dependents.length === 0) return;
  throw new AppError(
    "snapshot_in_use",
    `Cannot replace snapshot "${tag}": ${dependents.join(", ")} would be orphaned`,
    { details: { tag, dependents }, remedy: orphanRemedy(tag, dependents) },
  );
}

/** Sandboxes whose machine maps the snapshot. */
export function sandboxesOn(runtime: Pick<Runtime, "registry">, tag: string): string[] {
  return runtime.registry
    .all()
    .filter((sandbox) => sandbox.machineAtWork?.base.tag === tag)
    .map(({ id }) => id);
}
