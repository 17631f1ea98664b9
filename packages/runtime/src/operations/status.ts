/** What the daemon is, and how much it holds. */
import type { Status } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";

/** maximum age of the measurement of the disk */
const diskAgeMs = 60_000;

export async function status(runtime: Runtime): Promise<Status> {
  return {
    version: forkdVersion,
    pid: process.pid,
    data_dir: runtime.config.dataDir,
    runtime_dir: runtime.config.runtimeDir,
    accelerator: runtime.accelerator.accelerator,
    uptime_secs: Math.round((Date.now() - runtime.startedAt) / 1000),
    rss_bytes: process.memoryUsage.rss(),
    sandboxes: runtime.registry.live,
    snapshots: (await runtime.store.list()).length,
    image_cache_bytes: (await runtime.usage.disk.known(diskAgeMs)).images,
    pool: runtime.pool.counts(),
  };
}
