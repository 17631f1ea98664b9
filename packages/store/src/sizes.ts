/** Disk usage of a snapshot. */
import { stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";
import { snapshotDisks, snapshotFile, type StoredSnapshot } from "./snapshot.ts";

const blockBytes = 512;

export type SnapshotSizes = {
  /** sum of the files' lengths */
  logicalBytes: number;
  /** blocks of files that no other snapshot links */
  ownPhysicalBytes: number;
  /** blocks of files that other snapshots link too */
  sharedPhysicalBytes: number;
};

/** Disk usage of a file; undefined if it does not exist. */
export async function physicalBytes(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).blocks * blockBytes;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

export async function sizesOf(snapshot: StoredSnapshot): Promise<SnapshotSizes> {
  const memory = snapshot.manifest.files.layer === undefined ? "memory" : "layer";
  const roles = [memory, "devices", "rootfs"] as const;
  const paths = [...roles.map((role) => snapshotFile(snapshot, role)), ...snapshotDisks(snapshot)];
  const sizes = { logicalBytes: 0, ownPhysicalBytes: 0, sharedPhysicalBytes: 0 };
  for (const { size, blocks, nlink } of await Promise.all(paths.map((path) => stat(path)))) {
    sizes.logicalBytes += size;
    sizes[nlink > 1 ? "sharedPhysicalBytes" : "ownPhysicalBytes"] += blocks * blockBytes;
  }
  return sizes;
}
