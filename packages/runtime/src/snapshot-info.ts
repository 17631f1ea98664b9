/** A stored snapshot in the words of the contract. */
import { stat } from "node:fs/promises";
import type { SnapshotInfo } from "@forkd/contract";
import { isErrno } from "@forkd/base";
import { snapshotFile, type BrokenSnapshot, type FileRole, type StoredSnapshot } from "@forkd/store";
import { differences } from "./compatibility.ts";
import type { Runtime } from "./open-runtime.ts";

const blockBytes = 512;

/** Bytes on disk of one file of the snapshot; 0 if it is missing. */
export async function physicalBytes(snapshot: StoredSnapshot, role: FileRole): Promise<number> {
  try {
    return (await stat(snapshotFile(snapshot, role))).blocks * blockBytes;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return 0;
    throw error;
  }
}

export async function describeSnapshot(runtime: Runtime, snapshot: StoredSnapshot): Promise<SnapshotInfo> {
  const { manifest, tag, dir } = snapshot;
  const own = await Promise.all(
    (["memory", "devices", "disk"] as const).map((role) => physicalBytes(snapshot, role)),
  );
  const problems = differences(manifest, runtime.host);
  return {
    tag,
    dir,
    created_at_unix: manifest.created_at_unix,
    status: "ready",
    bootable: problems.length === 0,
    ...(problems.length > 0 && { warning: problems.join("; ") }),
    memory_mib: manifest.machine.memory_mib,
    vcpus: manifest.machine.vcpus,
    accelerator: manifest.machine.accelerator,
    languages: manifest.kernels.map((kernel) => kernel.language),
    ...(manifest.recipe && { recipe: manifest.recipe.name }),
    physical_bytes: own.reduce((sum, bytes) => sum + bytes, 0),
  };
}

export function describeBroken(runtime: Runtime, broken: BrokenSnapshot): SnapshotInfo {
  return {
    tag: broken.tag,
    dir: broken.dir,
    created_at_unix: 0,
    status: "failed",
    bootable: false,
    warning: broken.problem,
    memory_mib: 0,
    vcpus: 0,
    accelerator: runtime.accelerator.accelerator,
    languages: [],
    physical_bytes: 0,
  };
}
