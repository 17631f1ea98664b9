/** A daemon of the benchmark's own, on the benchmark's data directory. */
import { fork as forkProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runProgram } from "@forkd/base";
import type { Forkd } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";

export const repository = fileURLToPath(new URL("../../..", import.meta.url));
export const dataDir = join(repository, ".cache/bench-data");
export const runtimeDir = "/tmp/forkd-bench";
export const code = "numpy.zeros(5).tolist()";
export const answer = "[0.0, 0.0, 0.0, 0.0, 0.0]";

export type BenchDaemon = AsyncDisposable & {
  forkd: Forkd;
  pid: number;
  /** kill -9; its sandboxes live on */
  kill(): Promise<void>;
};

/** `copy` names a second data directory with hard links to the snapshots of the first, for a daemon beside it. */
export async function startDaemon(env: Record<string, string>, copy?: string): Promise<BenchDaemon> {
  const dir = copy === undefined ? dataDir : `${dataDir}-${copy}`;
  mkdirSync(dir, { recursive: true });
  if (copy !== undefined) {
    rmSync(join(dir, "snapshots"), { recursive: true, force: true });
    await runProgram("cp", ["-al", join(dataDir, "snapshots"), dir]);
  }
  return launchDaemon({ dir, runtimeDir: `${runtimeDir}${copy ?? ""}`, env });
}

export type LaunchOptions = {
  dir: string;
  runtimeDir: string;
  env: Record<string, string>;
  /** signals of the terminal do not reach it: whoever started it stops it */
  detached?: boolean;
};

export async function launchDaemon({ dir, runtimeDir, env, detached }: LaunchOptions): Promise<BenchDaemon> {
  const log = openSync(join(dir, "daemon.log"), "w");
  const child = forkProcess(join(repository, "packages/cli/dist/src/main.js"), ["serve"], {
    env: {
      ...process.env,
      FORKD_DATA_DIR: dir,
      FORKD_RUNTIME_DIR: runtimeDir,
      FORKD_LISTEN: "off",
      FORKD_LOG_LEVEL: "warn",
      FORKD_ON_STOP: "stop",
      ...env,
    },
    stdio: ["ignore", log, log, "ipc"],
    detached: detached === true,
  });
  closeSync(log);
  const exited = once(child, "exit");
  const ended = exited.then(() => {
    throw new Error(`The daemon ended, see ${join(dir, "daemon.log")}`);
  });
  ended.catch(() => undefined);
  const [ready] = (await Promise.race([once(child, "message"), ended])) as [{ socket: string }];
  return {
    forkd: await connect({ socket: ready.socket }),
    pid: child.pid ?? 0,
    kill: async () => {
      child.kill("SIGKILL");
      await exited;
    },
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGTERM");
      await exited;
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
