/** Snapshots: list, describe, remove, copy without parents; lineage; what nothing needs. */
import { stat } from "node:fs/promises";
import {
  AppError,
  type GcReport,
  type GcRequest,
  type ParsedOf,
  type SnapshotDetail,
  type SnapshotInfo,
  type Tree,
} from "@forkd/contract";
import { memoryBytes, physicalBytes, snapshotDisks, snapshotFile, type StoredSnapshot } from "@forkd/store";
import type { Context } from "../context.ts";
import { dependentsOf, orphanRemedy, sandboxesOn } from "../snapshots/lineage.ts";
import type { Runtime } from "../runtime.ts";
import { removeBranches } from "../snapshots/expired-branches.ts";
import { findStrays, removeStrays } from "../recovery/strays.ts";
import { unclaimed } from "./system.ts";
import { removeGroups, strayGroups } from "../recovery/stray-groups.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";
import { describeBroken, describeOpen, describeSnapshot } from "../snapshots/describe.ts";

/** Those that match, by tag. */
export async function findSnapshots(
  runtime: Runtime,
  filter: Pick<ParsedOf<"listSnapshots">, "tag" | "state" | "parent" | "branched_from">,
): Promise<SnapshotInfo[]> {
  return (await listSnapshots(runtime)).filter(
    (info) =>
      (filter.tag === undefined || info.tag === filter.tag) &&
      (filter.state === undefined || info.status === filter.state) &&
      (filter.parent === undefined || info.parent_tag === filter.parent) &&
      (filter.branched_from === undefined || info.branched_from === filter.branched_from),
  );
}

export async function listSnapshots(runtime: Runtime): Promise<SnapshotInfo[]> {
  const open = runtime.branches.all;
  const found = await runtime.store.list();
  const described = await Promise.all(
    found.map(async (each) =>
      "problem" in each ? describeBroken(runtime, each) : describeIfThere(runtime, each),
    ),
  );
  const settled = described.filter((each) => each !== undefined);
  // What is in the book cannot be used yet, also where its directory is there already.
  const writing = open.map((each) => describeOpen(runtime, each));
  const tags = new Set(writing.map(({ tag }) => tag));
  return [...settled.filter(({ tag }) => !tags.has(tag)), ...writing].sort((a, b) =>
    a.tag < b.tag ? -1 : 1,
  );
}

/** undefined if it was removed meanwhile */
async function describeIfThere(
  runtime: Runtime,
  snapshot: StoredSnapshot,
): Promise<SnapshotInfo | undefined> {
  try {
    return await withSnapshotFiles(runtime, snapshot, () => describeSnapshot(runtime, snapshot));
  } catch (error) {
    if (error instanceof AppError && error.code === "snapshot_not_found") return undefined;
    throw error;
  }
}

export async function snapshotInfo(
  runtime: Runtime,
  request: ParsedOf<"snapshotInfo">,
): Promise<SnapshotDetail> {
  const snapshot = await runtime.snapshot(request.tag);
  return withSnapshotFiles(runtime, snapshot, () => detailsOf(runtime, snapshot, request));
}

async function detailsOf(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  { tag, verify }: ParsedOf<"snapshotInfo">,
): Promise<SnapshotDetail> {
  if (verify) await runtime.store.verify(snapshot, { always: true });
  const { files, parent } = snapshot.manifest;
  const [rootfs, chain, dependents, disks, flat] = await Promise.all([
    stat(snapshotFile(snapshot, "rootfs")),
    runtime.store.chain(snapshot),
    dependentsOf(runtime, tag),
    Promise.all(snapshotDisks(snapshot).map((path) => physicalBytes(path))),
    physicalBytes(runtime.store.flatPath(snapshot)),
  ]);
  const memory = files.memory ? snapshotFile(snapshot, "memory") : snapshotFile(snapshot, "layer");
  return {
    ...(await describeSnapshot(runtime, snapshot)),
    id: snapshot.id,
    memory_logical_bytes: memoryBytes(snapshot.manifest),
    memory_physical_bytes: (await physicalBytes(memory)) ?? 0,
    vmstate_bytes: files.devices.bytes,
    disk_bytes: disks.reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0),
    rootfs_bytes: rootfs.size,
    chain_depth: chain.length - 1,
    ancestors: chain.slice(1).map((each) => each.tag),
    dependents,
    layer_bytes: files.layer?.bytes ?? 0,
    flat_cache_bytes: (files.layer && flat) ?? 0,
    ...(parent && { parent_content_hash: parent.id }),
    sandboxes: sandboxesOn(runtime, tag),
    manifest: snapshot.manifest,
  };
}

export async function removeSnapshot(
  runtime: Runtime,
  { tag, cascade, force }: ParsedOf<"removeSnapshot">,
): Promise<void> {
  runtime.branches.refuse(tag);
  const doomed = cascade ? [...(await runtime.store.descendants(tag)), tag] : [tag];
  if (!force) for (const each of doomed) await refuseUsed(runtime, each, doomed);
  for (const each of doomed) {
    await runtime.pool.drop(each);
    await runtime.store.remove(each);
    runtime.events.snapshot("snapshot.removed", each);
  }
}

async function refuseUsed(runtime: Runtime, tag: string, doomed: readonly string[]): Promise<void> {
  const users = sandboxesOn(runtime, tag);
  if (users.length > 0) {
    throw new AppError(
      "snapshot_in_use",
      `Cannot remove snapshot "${tag}": ${users.length} sandboxes run from it`,
      {
        details: { tag, sandboxes: users.slice(0, 20), count: users.length },
        remedy: { action: "kill_children", tag },
      },
    );
  }
  const dependents = (await dependentsOf(runtime, tag)).filter((each) => !doomed.includes(each));
  if (dependents.length === 0) return;
  throw new AppError(
    "snapshot_in_use",
    `Cannot remove snapshot "${tag}": ${dependents.join(", ")} would be orphaned`,
    { details: { tag, dependents }, remedy: orphanRemedy(tag, dependents) },
  );
}

/** A copy of the snapshot that needs no other. */
export function compact(
  runtime: Runtime,
  { tag, to }: ParsedOf<"compact">,
  { signal, log }: Context,
): Promise<SnapshotInfo> {
  return runtime.whileOpen(signal, async (open) => {
    if (tag === to)
      throw new AppError(
        "invalid_request",
        "Invalid request: to: must be another tag than the snapshot's own",
      );
    runtime.branches.refuse(to);
    const startedAt = performance.now();
    const from = await runtime.snapshot(tag);
    const made = await withSnapshotFiles(runtime, from, () =>
      runtime.store.compact(from, to, { signal: open }),
    );
    runtime.events.snapshot("snapshot.ready", to, { status: "ready" });
    log.info({
      event: "snapshot.compact",
      outcome: "ok",
      tag,
      to,
      durationMs: Math.round(performance.now() - startedAt),
    });
    return withSnapshotFiles(runtime, made, () => describeSnapshot(runtime, made));
  });
}

export async function tree(runtime: Runtime): Promise<Tree> {
  const snapshots = await listSnapshots(runtime);
  return {
    snapshots: snapshots.map((each) => ({
      tag: each.tag,
      status: each.status,
      ...(each.parent_tag !== undefined && { parent_tag: each.parent_tag }),
      ...(each.branched_from !== undefined && { branched_from: each.branched_from }),
      created_at_unix: each.created_at_unix,
      physical_bytes: each.physical_bytes,
    })),
    sandboxes: runtime.registry.all().map((sandbox) => ({
      id: sandbox.id,
      state: sandbox.state,
      snapshot_tag: sandbox.snapshotTag,
      ...(sandbox.facts.workspace !== undefined && { workspace: sandbox.facts.workspace }),
      created_at_unix: sandbox.facts.createdAt,
    })),
  };
}

/**
 * Flat images that no machine maps (they are made again when needed), snapshots that never came to be, strays, and the branches that
 * the request names.
 */
export async function gc(runtime: Runtime, request: GcRequest): Promise<GcReport> {
  const { dry_run: dryRun } = request;
  // First, for their flat images are then of no use either.
  const branches = await removeBranches(runtime, request);
  const images = await runtime.store.evict({ dryRun });
  const failed = (await runtime.store.list()).filter((each) => "problem" in each && each.kind === "failed");
  const strays = await findStrays(runtime.config, unclaimed(runtime));
  const groups = strayGroups(runtime.cgroups, (id) => runtime.owns(id));
  if (!dryRun) {
    await removeGroups(runtime.cgroups, groups);
    for (const { tag } of failed) {
      if (runtime.branches.has(tag)) continue;
      await runtime.store.removeFailed(tag);
      runtime.events.snapshot("snapshot.removed", tag);
    }
    await removeStrays(runtime.config, strays);
  }
  const removed: GcReport["removed"] = [
    ...branches,
    ...groups.map((name) => ({ kind: "group" as const, name, bytes: 0 })),
    ...images.map(({ id, bytes }) => ({ kind: "memory" as const, name: id, bytes })),
    ...failed.map(({ tag }) => ({ kind: "failed" as const, name: tag, bytes: 0 })),
    ...strays.map(({ kind, name }) => ({
      kind: kind === "process" ? ("process" as const) : ("directory" as const),
      name,
      bytes: 0,
    })),
  ];
  return { removed, freed_bytes: removed.reduce((sum, { bytes }) => sum + bytes, 0), dry_run: dryRun };
}
