/**
 * A daemon whose data directory is removed with it, so that a benchmark that makes many snapshots leaves
 * none. It shares only the images that snapshots are built from. It does not get signals of the terminal: the
 * benchmark unwinds and stops it.
 */
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launchDaemon, type BenchDaemon } from "./daemon.ts";
import { interrupt, isInterrupted } from "./deadline.ts";
import type { Run } from "./run.ts";

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
    const env = { FORKD_POOL_MEMORY_PERCENT: "0", FORKD_DRAIN_SECS: "0", ...more };
    daemon = await launchDaemon({ dir, runtimeDir, env, detached: true });
  } catch (error) {
    printLog(dir);
    remove();
    throw error;
  }
  return {
    ...daemon,
    dir,
    runtimeDir,
    [Symbol.asyncDispose]: async () => {
      try {
        await daemon[Symbol.asyncDispose]();
      } finally {
        printLog(dir);
        remove();
      }
    },
  };
}

/** The log is removed with the data directory. */
function printLog(dir: string): void {
  const lines = readFileSync(join(dir, "daemon.log"), "utf8").split("\n");
  const text = lines.filter((line) => !/^\{"level":"(debug|info)"/.test(line)).join("\n");
  if (text !== "") console.error(`the daemon's log:\n${text.slice(-5000)}`);
}

/**
 * Runs a benchmark. A signal ends its waits, so that it cleans up; what fails because of that is not
 * reported.
 */
export async function runBench(work: () => Promise<void>): Promise<void> {
  for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(name, interrupt);
  try {
    await work();
  } catch (error) {
    if (!isInterrupted()) throw error;
    console.error("interrupted");
    process.exitCode = 130;
  } finally {
    for (const name of ["SIGINT", "SIGTERM", "SIGHUP"]) process.off(name, interrupt);
  }
}
