/** Disk space of a sandbox on the host. */
import type { DiskLayer } from "@forkd/machine";
import { physicalBytes, snapshotDisks, type StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** What the saved disk of a sandbox uses beyond the disk of its snapshot. */
export async function ownDiskBytes(
  runtime: Pick<Runtime, "store">,
  sandbox: Sandbox,
  saved: StoredSnapshot,
): Promise<number> {
  const origin = await runtime.store.get(sandbox.snapshotTag).catch(() => undefined);
  const [whole, given] = await Promise.all([diskBytes(saved), origin ? diskBytes(origin) : 0]);
  return saved.tag === sandbox.snapshotTag ? 0 : Math.max(0, whole - given);
}

/**
 * Bytes of the snapshot's layers that the machine has copied into its own layer. They use space there, but
 * the sandbox did not write them.
 */
export async function mergedDiskBytes(base: StoredSnapshot, disk: readonly DiskLayer[]): Promise<number> {
  const used = new Set(disk.map(({ path }) => path));
  const sizes = snapshotDisks(base).map(async (path, index) => {
    if (used.has(path)) return 0;
    return (await physicalBytes(path)) ?? base.manifest.files.disks[index]?.bytes ?? 0;
  });
  return (await Promise.all(sizes)).reduce((sum, bytes) => sum + bytes, 0);
}

async function diskBytes(snapshot: StoredSnapshot): Promise<number> {
  const sizes = await Promise.all(snapshotDisks(snapshot).map((path) => physicalBytes(path)));
  return sizes.reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0);
}
