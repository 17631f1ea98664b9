/** Snapshots: list, describe, remove. */
import { stat } from "node:fs/promises";
import { AppError, type ParsedOf, type SnapshotDetail, type SnapshotInfo } from "@forkd/contract";
import { snapshotFile } from "@forkd/store";
import type { Runtime } from "../open-runtime.ts";
import { describeBroken, describeSnapshot, physicalBytes } from "../snapshot-info.ts";

export async function listSnapshots(runtime: Runtime): Promise<SnapshotInfo[]> {
  const found = await runtime.store.list();
  return Promise.all(
    found.map(async (each) =>
      "problem" in each ? describeBroken(runtime, each) : describeSnapshot(runtime, each),
    ),
  );
}

function sandboxesOf(runtime: Runtime, tag: string): string[] {
  return runtime.registry
    .all()
    .filter((sandbox) => !sandbox.isDead && sandbox.snapshot.tag === tag)
    .map((sandbox) => sandbox.id);
}

export async function snapshotInfo(
  runtime: Runtime,
  { tag, verify }: ParsedOf<"snapshotInfo">,
): Promise<SnapshotDetail> {
  const snapshot = await runtime.store.get(tag);
  if (verify) await runtime.store.verify(snapshot, { always: true });
  const { files } = snapshot.manifest;
  const [memory, rootfs] = await Promise.all([
    physicalBytes(snapshot, "memory"),
    stat(snapshotFile(snapshot, "rootfs")),
  ]);
  return {
    ...(await describeSnapshot(runtime, snapshot)),
    memory_logical_bytes: files.memory.bytes,
    memory_physical_bytes: memory,
    vmstate_bytes: files.devices.bytes,
    disk_bytes: files.disk.bytes,
    rootfs_bytes: rootfs.size,
    sandboxes: sandboxesOf(runtime, tag),
    manifest: snapshot.manifest,
  };
}

export async function removeSnapshot(
  runtime: Runtime,
  { tag, force }: ParsedOf<"removeSnapshot">,
): Promise<void> {
  const users = sandboxesOf(runtime, tag);
  if (users.length > 0 && !force) {
    throw new AppError(
      "snapshot_in_use",
      `Cannot remove snapshot "${tag}": ${users.length} sandboxes run from it. Kill them (forkd kill --tag ${tag}) or use --force, which lets them run on`,
      { details: { tag, sandboxes: users.slice(0, 20), count: users.length } },
    );
  }
  await runtime.pool.drop(tag);
  await runtime.store.remove(tag);
}
