/**
 * A daemon whose data directory is removed with it, so that a benchmark that makes many snapshots leaves none. It shares only the
 * images that snapshots are built from. Ctrl-C stops the daemon: pending calls fail, and the benchmark cleans up.
 */
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launchDaemon, type BenchDaemon } from "./daemon.ts";
import type { Run } from "./run.ts";

const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
let interrupted = false;

export type ScratchDaemon = BenchDaemon & { dir: string; runtimeDir: string };

export async function startScratchDaemon(
  run: Run,
  more: Record<string, string> = {},
): Promise<ScratchDaemon> {
  const dir = mkdtempSync(join(run.scratch, `bench-${run.name}-`));
  const runtimeDir = mkdtempSync(join(tmpdir(), "forkd-bench-"));
  const remove = () => {
    for (const path of [dir, runtimeDir]) rmSync(path, { recursive: true, force: true });
  };
  let daemon: BenchDaemon;
  try {
    symlinkSync(run.images, join(dir, "images"));
    const env = { FORKD_POOL_SIZE: "0", FORKD_DRAIN_SECS: "0", ...more };
    daemon = await launchDaemon({ dir, runtimeDir, env, detached: true });
  } catch (error) {
    printLog(dir);
    remove();
    throw error;
  }
  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= stopAndPrint(daemon, dir));
  const interrupt = () => {
    interrupted = true;
    // Its failure is thrown when the daemon is disposed of.
    stop().catch(() => undefined);
  };
  for (const name of signals) process.on(name, interrupt);
  return {
    ...daemon,
    dir,
    runtimeDir,
    [Symbol.asyncDispose]: async () => {
      try {
        await stop();
      } finally {
        for (const name of signals) process.off(name, interrupt);
        remove();
      }
    },
  };
}

async function stopAndPrint(daemon: BenchDaemon, dir: string): Promise<void> {
  try {
    await daemon[Symbol.asyncDispose]();
  } finally {
    printLog(dir);
  }
}

/** The log is removed with the data directory. */
function printLog(dir: string): void {
  const text = readFileSync(join(dir, "daemon.log"), "utf8");
  if (text !== "") console.error(`the daemon's log:\n${text.slice(-5000)}`);
}

/** Runs a benchmark. After an interrupt, what fails because the daemon has stopped is not reported. */
export async function runBench(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!interrupted) throw error;
    console.error("interrupted");
    process.exitCode = 130;
  }
}
