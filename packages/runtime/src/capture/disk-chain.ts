/**
 * Each branch of a source that writes to its disk freezes one more layer, and each layer delays the start of
 * a machine by a millisecond or two. So chains are kept short:
 *
 *   running source: QEMU copies its layers into the top one while the guest runs
 *   snapshot: many layers are merged into one file, unless too much would have to be copied
 *
 * Other owners of the old layers keep them through their own links.
 */
import { rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "@forkd/base";
import { mergeDisks, type Draft } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** of a running machine, the root file system and the layer being written included */
const maxDiskLayers = 8;
/** of a snapshot */
const maxSnapshotDisks = 6;
/** above it layers are merged only if a manifest could not hold them all */
const maxMergeBytes = 512 * 1024 * 1024;
const maxLongDisks = 48;

export async function collapseIfLong(
  runtime: Pick<Runtime, "log">,
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
        // Layers of the source snapshot belong to the snapshot.
        if (path.startsWith(source.paths.dir)) await removeTree(path);
      }
    });
  } catch (error) {
    // The chain stays long; nothing else is wrong.
    runtime.log.warn({ event: "disk.collapse", sandbox: sandbox.id, error });
  }
}

/** Merges the disk layers of a draft if there are many. Returns whether it did. */
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
