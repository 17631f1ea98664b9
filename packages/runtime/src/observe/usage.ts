/**
 * Memory, CPU and disk of sandboxes, measured for all of them at once and cached: for smaps_rollup the kernel
 * walks every page table, which takes a noticeable time for a hundred machines.
 */
import type { Dirent } from "node:fs";
import { readdir, stat, statfs } from "node:fs/promises";
import { join } from "node:path";
import { CachedValue, isErrno, mapPool } from "@forkd/base";
import { cpuSeconds, memoryUse, type MemoryUse } from "@forkd/machine";
import { imagesDir, snapshotsDir, type RuntimeConfig } from "../config.ts";
import { sandboxHome } from "../sandbox/paths.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

/** concurrent reads; they share the thread pool with all other file access */
const parallel = 2;

type SandboxUsage = {
  readonly pid: number | undefined;
  readonly cpuSeconds: number | undefined;
  readonly memory: MemoryUse | undefined;
  readonly diskBytes: number;
  readonly atMs: number;
};
export type UsageSample = { readonly atMs: number; readonly byId: ReadonlyMap<string, SandboxUsage> };
type DiskSample = { snapshots: number; sandboxes: number; cache: number; images: number; free: number };

type UsageParts = { readonly config: RuntimeConfig; readonly sandboxes: () => readonly Sandbox[] };

export class Usage {
  readonly sandboxes: CachedValue<UsageSample>;
  readonly disk: CachedValue<DiskSample>;

  constructor({ config, sandboxes }: UsageParts) {
    this.sandboxes = new CachedValue(() => sampleSandboxes(config, sandboxes()));
    this.disk = new CachedValue(() => sampleDisk(config));
  }
}

async function sampleSandboxes(config: RuntimeConfig, sandboxes: readonly Sandbox[]): Promise<UsageSample> {
  const measured = await mapPool(sandboxes, parallel, async (sandbox) => {
    const { pid, state } = sandbox.info();
    const [memory, cpu, diskBytes] = await Promise.all([
      pid === undefined ? undefined : memoryUse(pid),
      pid === undefined ? undefined : cpuSeconds(pid),
      state === "dead" ? 0 : ownBytes(sandboxHome(config, sandbox.id).dir),
    ]);
    return [sandbox.id, { pid, memory, cpuSeconds: cpu, diskBytes, atMs: Date.now() }] as const;
  });
  return { atMs: Date.now(), byId: new Map(measured) };
}

async function sampleDisk(config: RuntimeConfig): Promise<DiskSample> {
  const { bavail, bsize } = await statfs(config.dataDir);
  const seen = new Set<string>();
  return {
    snapshots: await treeBytes(snapshotsDir(config), { seen }),
    sandboxes: await treeBytes(join(config.dataDir, "sandboxes"), { seen }),
    cache: await treeBytes(join(config.dataDir, "cache"), { seen }),
    images: await treeBytes(imagesDir(config), { seen }),
    free: bavail * bsize,
  };
}

/** Bytes on disk of the files in a directory that have no other link. */
export function ownBytes(dir: string): Promise<number> {
  return treeBytes(dir, { ownOnly: true });
}

/** Bytes on disk below a directory. A file with several links counts once, or with `ownOnly` not at all. */
async function treeBytes(dir: string, options: { seen?: Set<string>; ownOnly?: boolean }): Promise<number> {
  let entries: Dirent[];
  try {
    entries = await readdir(dir, { withFileTypes: true });
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return 0;
    throw error;
  }
  let sum = 0;
  for (const entry of entries) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) sum += await treeBytes(path, options);
    else if (entry.isFile()) sum += await fileBytes(path, options);
  }
  return sum;
}

async function fileBytes(path: string, options: { seen?: Set<string>; ownOnly?: boolean }): Promise<number> {
  try {
    const { nlink, dev, ino, blocks } = await stat(path);
    if (nlink > 1) {
      const key = `${dev}:${ino}`;
      if (options.ownOnly || options.seen?.has(key)) return 0;
      options.seen?.add(key);
    }
    return blocks * 512;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return 0;
    throw error;
  }
}
