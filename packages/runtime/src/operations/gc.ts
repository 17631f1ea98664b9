/** Removes what nothing needs: gc() of the store and of sandboxes, cleanup() of sandboxes only. */
import type { CleanupReport, GcReport, GcRequest } from "@forkd/contract";
import { findLeftovers, removeLeftovers } from "../recovery/leftovers.ts";
import type { Runtime } from "../runtime.ts";
import { removeBranches } from "../snapshots/expired-branches.ts";

/**
 * Removes flat images that no machine maps (they are written again when needed), failed snapshots, leftovers
 * of sandboxes, and the branches that the request selects.
 */
export async function gc(runtime: Runtime, request: GcRequest): Promise<GcReport> {
  const { dry_run: dryRun } = request;
  // First, so that their flat images are removed too.
  const branches = await removeBranches(runtime, request);
  const images = await runtime.store.evict({ dryRun });
  const failed = (await runtime.store.list()).filter((each) => "problem" in each && each.kind === "failed");
  const leftovers = await findLeftovers(runtime);
  if (!dryRun) {
    for (const { tag } of failed) {
      if (runtime.branches.has(tag)) continue;
      await runtime.store.removeFailed(tag);
      runtime.events.snapshot("snapshot.removed", tag);
    }
    await removeLeftovers(runtime, leftovers);
  }
  const removed: GcReport["removed"] = [
    ...branches,
    ...leftovers.groups.map((name) => ({ kind: "group" as const, name, bytes: 0 })),
    ...images.map(({ id, bytes }) => ({ kind: "memory" as const, name: id, bytes })),
    ...failed.map(({ tag }) => ({ kind: "failed" as const, name: tag, bytes: 0 })),
    ...leftovers.strays.map(({ kind, name }) => ({
      kind: kind === "process" ? ("process" as const) : ("directory" as const),
      name,
      bytes: 0,
    })),
  ];
  return { removed, freed_bytes: removed.reduce((sum, { bytes }) => sum + bytes, 0), dry_run: dryRun };
}

/**
 * Removes directories, processes and control groups of sandboxes that are neither in the registry nor in the
 * pool.
 */
export async function cleanup(
  runtime: Pick<Runtime, "cgroups" | "config" | "places">,
  { dry_run: dryRun }: { dry_run: boolean },
): Promise<CleanupReport> {
  const leftovers = await findLeftovers(runtime);
  if (!dryRun) await removeLeftovers(runtime, leftovers);
  const groups = leftovers.groups.map((name) => ({ kind: "group", name, detail: "control group" }));
  const removed = [...leftovers.strays, ...groups];
  return { removed, dry_run: dryRun };
}
