/** Who stands on whom: snapshots by their parents, sandboxes by what they run from. */
import type { Runtime } from "../runtime.ts";

/** Snapshots, also those being written, and sandboxes with saved state whose memory is a layer over the snapshot. */
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

/** Sandboxes whose machine maps the snapshot. */
export function sandboxesOn(runtime: Pick<Runtime, "registry">, tag: string): string[] {
  return runtime.registry
    .all()
    .filter((sandbox) => sandbox.machineAtWork?.base.tag === tag)
    .map(({ id }) => id);
}
