/**
 * Branches that a policy allows to remove; built snapshots are never removed. A branch is removed only if no
 * snapshot or saved state is a layer over it, and no sandbox runs from it or would be restored from it. A
 * chain is removed from its end.
 */
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { GcReport, GcRequest } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { dependentsOf, sandboxesOn } from "./lineage.ts";
import type { Runtime } from "../runtime.ts";

export type Policy = Pick<GcRequest, "branches" | "older_than_secs" | "keep_last">;

/** In the order in which they can be removed. */
async function expiredBranches(
  runtime: Pick<Runtime, "branches" | "registry" | "store">,
  policy: Policy,
): Promise<StoredSnapshot[]> {
  const { older_than_secs: age, keep_last: kept = 0 } = policy;
  if (!policy.branches && age === undefined && policy.keep_last === undefined) return [];
  const before = age === undefined ? Number.POSITIVE_INFINITY : Date.now() / 1000 - age;
  const found = (await runtime.store.list()).filter(
    (each): each is StoredSnapshot => !("problem" in each) && each.manifest.origin.kind === "branch",
  );
  const branches = await newestFirst(found);
  const candidates = branches.slice(kept).filter(({ manifest }) => manifest.created_at_unix <= before);
  const doomed: StoredSnapshot[] = [];
  // Newest first, so that layers come before their parents. Repeat while that frees another one.
  for (let found = true; found;) {
    found = false;
    for (const each of candidates) {
      if (doomed.includes(each) || !(await isFree(runtime, each.tag, doomed))) continue;
      doomed.push(each);
      found = true;
    }
  }
  return doomed;
}

/** Manifests have a resolution of one second; within one the modification time of the file decides. */
async function newestFirst(snapshots: readonly StoredSnapshot[]): Promise<StoredSnapshot[]> {
  const dated = await Promise.all(
    snapshots.map(async (snapshot) => {
      const written = await stat(join(snapshot.dir, "manifest.json")).catch(() => undefined);
      return { snapshot, at: snapshot.manifest.created_at_unix, writtenMs: written?.mtimeMs ?? 0 };
    }),
  );
  dated.sort((a, b) => b.at - a.at || b.writtenMs - a.writtenMs);
  return dated.map(({ snapshot }) => snapshot);
}

/** True if every dependent is itself being removed. */
async function isFree(
  runtime: Pick<Runtime, "branches" | "registry" | "store">,
  tag: string,
  doomed: readonly { tag: string }[] = [],
): Promise<boolean> {
  if (runtime.branches.has(tag) || sandboxesOn(runtime, tag).length > 0) return false;
  const origin = runtime.registry.all().some((each) => !each.isDead && each.snapshotTag === tag);
  if (origin) return false;
  const dependents = await dependentsOf(runtime, tag);
  return dependents.every((each) => doomed.some((other) => other.tag === each));
}

/** Removes expired branches, or with `dry_run` only reports them. */
export async function removeBranches(
  runtime: Runtime,
  request: Policy & { dry_run: boolean },
): Promise<GcReport["removed"]> {
  const removed: GcReport["removed"] = [];
  for (const snapshot of await expiredBranches(runtime, request)) {
    const { ownPhysicalBytes: bytes } = await runtime.store.sizes(snapshot);
    if (!request.dry_run) {
      // It may have been forked, branched or replaced since.
      if (!(await isFree(runtime, snapshot.tag)) || !(await runtime.store.isCurrent(snapshot))) continue;
      await runtime.pool.drop(snapshot.tag);
      // A machine that is being started holds it.
      if (runtime.images.isHeld(snapshot.id) || !(await isFree(runtime, snapshot.tag))) continue;
      await runtime.store.remove(snapshot.tag);
      await runtime.pool.forget(snapshot.tag);
      runtime.events.snapshot("snapshot.removed", snapshot.tag);
    }
    removed.push({ kind: "snapshot", name: snapshot.tag, bytes });
  }
  return removed;
}
