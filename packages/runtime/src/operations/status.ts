/** What the daemon is, and how much it holds. */
import type { Status } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";

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
    pool: runtime.pool.counts(),
  };
}
