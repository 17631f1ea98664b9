/** Snapshots: list, describe, lineage. */
import { stat } from "node:fs/promises";
import { AppError, type ParsedOf, type SnapshotDetail, type SnapshotInfo, type Tree } from "@forkd/contract";
import { memoryBytes, physicalBytes, snapshotDisks, snapshotFile, type StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import { describeBroken, describeOpen, describeSnapshot } from "../snapshots/describe.ts";
import { dependentsOf, sandboxesOn } from "../snapshots/lineage.ts";
import { withSnapshotFiles } from "../snapshots/missing-snapshot.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";
import { describeResult, readResult } from "../verify/results.ts";

/** Matching snapshots, ordered by tag. */
export async function findSnapshots(
  runtime: Pick<Runtime, "accelerator" | "branches" | "host" | "store">,
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

export async function listSnapshots(
  runtime: Pick<Runtime, "accelerator" | "branches" | "host" | "store">,
): Promise<SnapshotInfo[]> {
  const open = runtime.branches.all;
  const found = await runtime.store.list();
  const described = await Promise.all(
    found.map(async (each) =>
      "problem" in each ? describeBroken(runtime, each) : describeIfThere(runtime, each),
    ),
  );
  const settled = described.filter((each) => each !== undefined);
  // An open branch cannot be used yet, even if its directory exists.
  const writing = open.map((each) => describeOpen(runtime, each));
  const tags = new Set(writing.map(({ tag }) => tag));
  return [...settled.filter(({ tag }) => !tags.has(tag)), ...writing].sort((a, b) =>
    a.tag < b.tag ? -1 : 1,
  );
}

/** undefined if it was removed in between */
async function describeIfThere(
  runtime: Pick<Runtime, "host" | "store">,
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
  runtime: Pick<Runtime, "branches" | "config" | "host" | "registry" | "store">,
  request: ParsedOf<"snapshotInfo">,
): Promise<SnapshotDetail> {
  const snapshot = await usableSnapshot(runtime, request.tag);
  return withSnapshotFiles(runtime, snapshot, () => detailsOf(runtime, snapshot, request));
}

async function detailsOf(
  runtime: Pick<Runtime, "branches" | "config" | "host" | "registry" | "store">,
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
    rootfs_physical_bytes: rootfs.blocks * 512,
    chain_depth: chain.length - 1,
    ancestors: chain.slice(1).map((each) => each.tag),
    dependents,
    layer_bytes: files.layer?.bytes ?? 0,
    flat_cache_bytes: (files.layer && flat) ?? 0,
    ...(parent && { parent_content_hash: parent.id }),
    sandboxes: sandboxesOn(runtime, tag),
    ...imageConfig(snapshot),
    ...(snapshot.manifest.require && { require: snapshot.manifest.require }),
    ...(await lastVerification(runtime, snapshot)),
    manifest: snapshot.manifest,
  };
}

function imageConfig({ manifest }: StoredSnapshot): Pick<SnapshotDetail, "image_config"> {
  const { image, defaults } = manifest;
  if (!image) return {};
  const { reference: _, ...config } = image;
  return { image_config: { ...config, workdir: defaults?.cwd, user: defaults?.user } };
}

/** A result that cannot be read is shown as none; a fork that needs it says why. */
async function lastVerification(
  runtime: Pick<Runtime, "config" | "host">,
  { id, manifest }: StoredSnapshot,
): Promise<Pick<SnapshotDetail, "verification">> {
  for (const each of [id, ...(manifest.verified_as === undefined ? [] : [manifest.verified_as])]) {
    const stored = await readResult(runtime, each);
    if (stored.kind === "found") return { verification: describeResult(runtime, stored.result) };
  }
  return {};
}

export async function tree(
  runtime: Pick<Runtime, "accelerator" | "branches" | "host" | "registry" | "store">,
): Promise<Tree> {
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
