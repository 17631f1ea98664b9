/** What the disk of a sandbox takes on the host. */
import { physicalBytes, snapshotDisks, type StoredSnapshot } from "@forkd/store";
import type { Runtime } from "./open-runtime.ts";
import type { Sandbox } from "./sandbox/sandbox.ts";

/** What the saved disk of a sandbox has beyond that of the snapshot it descends from. */
export async function ownDiskBytes(
  runtime: Runtime,
  sandbox: Sandbox,
  saved: StoredSnapshot,
): Promise<number> {
  const origin = await runtime.store.get(sandbox.snapshotTag).catch(() => undefined);
  const [whole, given] = await Promise.all([diskBytes(saved), origin ? diskBytes(origin) : 0]);
  return saved.tag === sandbox.snapshotTag ? 0 : Math.max(0, whole - given);
}

async function diskBytes(snapshot: StoredSnapshot): Promise<number> {
  const sizes = await Promise.all(snapshotDisks(snapshot).map((path) => physicalBytes(path)));
  return sizes.reduce<number>((sum, bytes) => sum + (bytes ?? 0), 0);
}
