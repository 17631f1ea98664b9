/** Who stands on whom: snapshots by their parents, sandboxes by what they run from. */
import type { StoredSnapshot } from "@forkd/store";
import type { Runtime } from "./open-runtime.ts";

/** Snapshots and sandboxes with saved state whose memory is a layer over the snapshot. */
export async function dependentsOf(runtime: Runtime, tag: string): Promise<string[]> {
  const saved = runtime.registry
    .all()
    .filter(({ saved: state }) => state?.snapshot.manifest.parent?.tag === tag)
    .map(({ id }) => id);
  return [...(await runtime.store.dependents(tag)), ...saved];
}

/** Sandboxes whose machine maps the snapshot. */
export function sandboxesOn(runtime: Runtime, tag: string): string[] {
  return runtime.registry
    .all()
    .filter((sandbox) => sandbox.machineAtWork?.base.tag === tag)
    .map(({ id }) => id);
}

/** Makes room for images to come; the newest one and those in use stay. */
export async function trimImages(runtime: Runtime, newest: StoredSnapshot): Promise<void> {
  const keep = runtime.images.ids.add(newest.id);
  await runtime.store.evict(keep, { downTo: runtime.config.memoryCacheMib * 1024 * 1024 });
}
