/** Size of the disk of a snapshot. */
import { snapshotInfo, type Runtime } from "@forkd/runtime";

const mib = 1024 * 1024;

/** In MiB; 0 if the snapshot is gone. */
export async function diskMibOf(runtime: Runtime, tag: string): Promise<number> {
  const found = await snapshotInfo(runtime, { tag }).catch(() => undefined);
  return found ? Math.ceil(found.rootfs_bytes / mib) : 0;
}
