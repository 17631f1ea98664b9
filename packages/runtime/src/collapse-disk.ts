/**
 * Every branch of a source that writes to its disk freezes one layer more. When there are many, their content is copied into the
 * layer being written while the guest runs; snapshots that have the old layers keep them by their own links.
 */
import { removeTree } from "@forkd/base";
import type { Runtime } from "./open-runtime.ts";
import type { Incarnation } from "./sandbox/incarnation.ts";
import type { Sandbox } from "./sandbox/sandbox.ts";

export const maxDiskLayers = 16;

export async function collapseIfLong(runtime: Runtime, sandbox: Sandbox, source: Incarnation): Promise<void> {
  if (source.machine.disk.length <= maxDiskLayers) return;
  try {
    await sandbox.lifecycle.run(async () => {
      if (sandbox.machineAtWork !== source || source.machine.disk.length <= maxDiskLayers) return;
      const unused = await source.machine.collapseDisk(1);
      for (const { path } of unused) {
        source.frozen.delete(path);
        // Layers of the snapshot that it was forked from are not its own.
        if (path.startsWith(source.paths.dir)) await removeTree(path);
      }
    });
  } catch (error) {
    // The chain stays as it is, only longer.
    runtime.log.warn({ event: "disk.collapse", sandbox: sandbox.id, error });
  }
}
