/** Snapshots, stored or being written, as the contract describes them. */
import { join } from "node:path";
import type { SnapshotInfo } from "@forkd/contract";
import type { BrokenSnapshot, StoredSnapshot } from "@forkd/store";
import type { OpenBranch } from "../capture/open-branches.ts";
import { differences } from "./compatibility.ts";
import type { Runtime } from "../runtime.ts";

function originFields({ manifest }: StoredSnapshot): Partial<SnapshotInfo> {
  const { origin } = manifest;
  if (origin.kind === "branch")
    return { branched_from: origin.sandbox, mode: origin.mode, pause_ms: origin.pause_ms };
  return origin.kind === "compact" ? { branched_from: `compact:${origin.of}` } : {};
}

export async function describeSnapshot(
  runtime: Pick<Runtime, "host" | "store">,
  snapshot: StoredSnapshot,
): Promise<SnapshotInfo> {
  const { manifest, tag, dir } = snapshot;
  const { ownPhysicalBytes, ownBytes, totalBytes } = await runtime.store.sizes(snapshot);
  const problems = differences(manifest, runtime.host);
  // A parent from an archive may be kept under another tag than the manifest names.
  const parent = manifest.parent && ((await runtime.store.parentOf(snapshot)) ?? manifest.parent);
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
    ...(manifest.image && { image: manifest.image.reference }),
    physical_bytes: ownPhysicalBytes,
    own_bytes: ownBytes,
    total_bytes: totalBytes,
    ...(parent && { parent_tag: parent.tag }),
    ...originFields(snapshot),
  };
}

function unusable(
  runtime: Pick<Runtime, "accelerator" | "store">,
  tag: string,
  status: "writing" | "failed",
): SnapshotInfo {
  return {
    tag,
    dir: join(runtime.store.root, tag),
    created_at_unix: 0,
    status,
    bootable: false,
    memory_mib: 0,
    vcpus: 0,
    accelerator: runtime.accelerator.accelerator,
    languages: [],
    physical_bytes: 0,
    own_bytes: 0,
    total_bytes: 0,
  };
}

export function describeBroken(
  runtime: Pick<Runtime, "accelerator" | "store">,
  broken: BrokenSnapshot,
): SnapshotInfo {
  return {
    ...unusable(runtime, broken.tag, "failed"),
    created_at_unix: broken.failedAtUnix ?? 0,
    warning: broken.problem,
    ...(broken.branchedFrom !== undefined && { branched_from: broken.branchedFrom }),
  };
}

export function describeOpen(
  runtime: Pick<Runtime, "accelerator" | "store">,
  open: OpenBranch,
): SnapshotInfo {
  return {
    ...unusable(runtime, open.tag, "writing"),
    created_at_unix: open.startedAt,
    memory_mib: open.memoryMib ?? 0,
    vcpus: open.vcpus ?? 0,
    ...(open.parentTag !== undefined && { parent_tag: open.parentTag }),
    branched_from: open.sandbox,
    mode: open.mode,
  };
}
