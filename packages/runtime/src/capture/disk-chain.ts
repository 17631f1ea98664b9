/**
 * Every branch of a source that writes to its disk freezes one layer more, and every layer costs the start of a machine a
 * millisecond or two. So chains are kept short:
 *
 *   of a running source: what its layers hold is copied into the one being written, while the guest runs
 *   of a snapshot: its layers become one file when there are many, unless that means to copy very much
 *
 * Whoever else has the old layers keeps them by links of its own.
 */
import { rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "@forkd/base";
import { mergeDisks, type Draft } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** of a running machine, the root file system and the layer being written included */
export const maxDiskLayers = 8;
/** of a snapshot */
const maxSnapshotDisks = 6;
/** above it layers are merged only where a manifest could not hold them all */
const maxMergeBytes = 512 * 1024 * 1024;
const maxLongDisks = 48;

export async function collapseIfLong(
  runtime: Runtime,
  sandbox: Sandbox,
  source: SandboxMachine,
): Promise<void> {
  if (source.machine.disk.length <= maxDiskLayers) return;
  try {
    await sandbox.exclusively(undefined, async () => {
      if (sandbox.machineAtWork !== source || source.machine.disk.length <= maxDiskLayers) return;
      const unused = await source.machine.collapseDisk(1);
      for (const { path } of unused) {
        source.forgetFrozen(path);
        // Layers of the snapshot that it was forked from are not its own.
        if (path.startsWith(source.paths.dir)) await removeTree(path);
      }
    });
  } catch (error) {
    // The chain stays as it is, only longer.
    runtime.log.warn({ event: "disk.collapse", sandbox: sandbox.id, error });
  }
}

/** Merges the disk layers of a draft if there are many; true if it did. */
export async function shortenDisk(
  draft: Draft,
  count: number,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  if (count <= maxSnapshotDisks) return false;
  const paths = Array.from({ length: count }, (_, index) => draft.diskPath(index));
  const sizes = await Promise.all(paths.map(async (path) => (await stat(path)).size));
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  if (bytes > maxMergeBytes && count <= maxLongDisks) return false;
  const merged = join(draft.dir, ".disk-merged");
  await mergeDisks(paths, merged, { signal });
  await Promise.all(paths.map(removeTree));
  await rename(merged, draft.diskPath(0));
  return true;
}
