/** Removes what nothing needs: gc() of the store and of sandboxes, cleanup() of sandboxes only. */
import type { CleanupReport, GcReport, GcRequest } from "@forkd/contract";
import { removeUnusedImages, type UnusedImage } from "@forkd/image";
import { imagesDir } from "../config.ts";
import { findLeftovers, removeLeftovers } from "../recovery/leftovers.ts";
import type { Runtime } from "../runtime.ts";
import { removeBranches } from "../snapshots/expired-branches.ts";
import { removeUnused } from "../verify/results.ts";

/**
 * Removes flat images and views that no machine uses and compressed parts of snapshots (they are made again
 * when needed), failed snapshots, what interrupted pulls have fetched, leftovers of sandboxes, and the branches and
 * unused images that the request selects.
 */
export async function gc(runtime: Runtime, request: GcRequest): Promise<GcReport> {
  const { dry_run: dryRun } = request;
  // First, so that their flat images are removed too.
  const branches = await removeBranches(runtime, request);
  const images = await runtime.store.evict({ dryRun });
  const unused = await unusedImages(runtime, { dryRun: dryRun || !request.images });
  const failed = (await runtime.store.list()).filter((each) => "problem" in each && each.kind === "failed");
  const leftovers = await findLeftovers(runtime);
  const blobBytes = dryRun ? await runtime.blobs.unusedBytes() : await runtime.blobs.trim(0);
  const pulls = await runtime.store.pulls.removeIdle({ dryRun });
  if (!dryRun) {
    for (const { tag } of failed) {
      if (runtime.branches.has(tag)) continue;
      await runtime.store.removeFailed(tag);
      runtime.events.snapshot("snapshot.removed", tag);
    }
    await removeLeftovers(runtime, leftovers);
    await removeUnused(runtime);
  }
  const removed: GcReport["removed"] = [
    ...branches,
    ...leftovers.groups.map((name) => ({ kind: "group" as const, name, bytes: 0 })),
    ...images.map(({ id, bytes }) => ({ kind: "memory" as const, name: id, bytes })),
    ...(blobBytes > 0 ? [{ kind: "blobs" as const, name: "cache/blobs", bytes: blobBytes }] : []),
    ...pulls.map((pull) => ({ ...pull, kind: "pull" as const })),
    ...(request.images ? unused : []).map((image) => ({ ...image, kind: "image" as const })),
    ...failed.map(({ tag }) => ({ kind: "failed" as const, name: tag, bytes: 0 })),
    ...leftovers.strays.map(({ kind, name }) => ({
      kind: kind === "process" ? ("process" as const) : ("directory" as const),
      name,
      bytes: 0,
    })),
  ];
  // Package files and layers make the next build faster, so they do not count as unused.
  const kept = request.images ? [] : unused.filter(({ kind }) => kind !== "packages" && kind !== "blobs");
  const keptBytes = bytesOf(kept);
  return {
    removed,
    freed_bytes: bytesOf(removed),
    ...(keptBytes > 0 && { kept_image_bytes: keptBytes }),
    dry_run: dryRun,
  };
}

function bytesOf(items: readonly { bytes: number }[]): number {
  return items.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Images that neither a snapshot nor a build uses. They are removed unless it is a dry run. */
async function unusedImages(
  { config, store }: Pick<Runtime, "config" | "store">,
  { dryRun }: { dryRun: boolean },
): Promise<UnusedImage[]> {
  const used = new Set(
    (await store.list()).flatMap((each) => {
      if ("problem" in each) return [];
      const { rootfs, kernel, initramfs } = each.manifest;
      return [`rootfs ${rootfs.digest}`, `kernel ${kernel.digest}`, `initramfs ${initramfs.digest}`];
    }),
  );
  return await removeUnusedImages(imagesDir(config), {
    isUsed: (kind, digest) => used.has(`${kind} ${digest}`),
    dryRun,
  });
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
