/**
 * A daemon whose data directory lives as long as it does: a benchmark that makes many snapshots leaves none. Only the
 * images that snapshots are built from are shared with the other benchmarks. Ctrl-C stops the daemon, which fails
 * whatever is under way, so that the benchmark unwinds.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { dataDir, launchDaemon, repository, type BenchDaemon } from "./daemon.ts";

const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
let interrupted = false;

export type ScratchDaemon = BenchDaemon & { dir: string; runtimeDir: string };

export async function startScratchDaemon(
  name: string,
  more: Record<string, string> = {},
): Promise<ScratchDaemon> {
  const images = join(dataDir, "images");
  mkdirSync(images, { recursive: true });
  const dir = mkdtempSync(join(repository, `.cache/bench-${name}-`));
  const runtimeDir = mkdtempSync(join(tmpdir(), "forkd-bench-"));
  const remove = () => {
    for (const path of [dir, runtimeDir]) rmSync(path, { recursive: true, force: true });
  };
  let daemon: BenchDaemon;
  try {
    symlinkSync(images, join(dir, "images"));
    const env = { FORKD_POOL_SIZE: "0", FORKD_DRAIN_SECS: "0", ...more };
    daemon = await launchDaemon({ dir, runtimeDir, env, detached: true });
  } catch (error) {
    remove();
    throw error;
  }
  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= stopAndTell(daemon, dir));
  const interrupt = () => {
    interrupted = true;
    void stop();
  };
  for (const name of signals) process.on(name, interrupt);
  return {
    ...daemon,
    dir,
    runtimeDir,
    [Symbol.asyncDispose]: async () => {
      await stop();
      for (const name of signals) process.off(name, interrupt);
      remove();
    },
  };
}

/** What the daemon warned of would go with its directory. */
async function stopAndTell(daemon: BenchDaemon, dir: string): Promise<void> {
  await daemon[Symbol.asyncDispose]();
  const text = readFileSync(join(dir, "daemon.log"), "utf8");
  if (text !== "") console.error(`the daemon's log:\n${text.slice(-5000)}`);
}

/** Runs a benchmark; one that was interrupted ends quietly, once it has cleaned up. */
export async function runBench(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!interrupted) throw error;
    console.error("interrupted");
    process.exitCode = 130;
  }
}

/** The recipe of the benchmarks with another size of memory. */
export async function buildBase({ forkd }: BenchDaemon, memoryMib: number): Promise<string> {
  const tag = `base-${memoryMib}`;
  console.error(`building ${tag}`);
  await forkd.snapshots.build({
    tag,
    recipe: join(repository, "recipes/python-numpy"),
    memory_mib: memoryMib,
  });
  return tag;
}
