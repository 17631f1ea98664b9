/** A daemon of the benchmark's own, on the benchmark's data directory. */
import { fork as forkProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Forkd } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";

export const repository = fileURLToPath(new URL("../../..", import.meta.url));
export const dataDir = join(repository, ".cache/bench-data");
export const runtimeDir = "/tmp/forkd-bench";
export const code = "numpy.zeros(5).tolist()";
export const answer = "[0.0, 0.0, 0.0, 0.0, 0.0]";

export type BenchDaemon = AsyncDisposable & { forkd: Forkd; pid: number };

export async function startDaemon(env: Record<string, string>): Promise<BenchDaemon> {
  mkdirSync(dataDir, { recursive: true });
  const log = openSync(join(dataDir, "daemon.log"), "w");
  const child = forkProcess(join(repository, "packages/cli/dist/src/main.js"), ["serve"], {
    env: {
      ...process.env,
      FORKD_DATA_DIR: dataDir,
      FORKD_RUNTIME_DIR: runtimeDir,
      FORKD_LISTEN: "off",
      FORKD_LOG_LEVEL: "warn",
      ...env,
    },
    stdio: ["ignore", log, log, "ipc"],
  });
  const [ready] = (await once(child, "message")) as [{ socket: string }];
  return {
    forkd: await connect({ socket: ready.socket }),
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGTERM");
      await once(child, "exit");
    },
  };
}

/** The snapshot that is measured, built if it is not there. */
export async function ensureSnapshot(forkd: Forkd): Promise<void> {
  const tags = (await forkd.snapshots.list()).filter(({ bootable }) => bootable).map(({ tag }) => tag);
  if (tags.includes("python-numpy")) return;
  await forkd.snapshots.build(
    { tag: "python-numpy", recipe: join(repository, "recipes/python-numpy"), force: true },
    { onProgress: (event) => console.error(`    ${event.step}: ${event.message}`) },
  );
}
