/**
 * The snapshots that benchmarks fork. A tiny run links those that the tests have baked; other runs build
 * their own.
 */
import { existsSync } from "node:fs";
import { link, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import type { Forkd } from "@forkd/sdk";
import { launchDaemon } from "./daemon.ts";
import { command } from "./deadline.ts";
import { repository, type Run } from "./run.ts";
import type { ScratchDaemon } from "./scratch-daemon.ts";
import { withTinyRoot } from "./tiny-root.ts";

const numpyRecipe = join(repository, "recipes/python-numpy");
const numpyTag = "python-numpy";
/** memory of the snapshot that the tests have baked from `numpyRecipe` */
export const bakedMemoryMib = 512;

/**
 * Gives the data directory `dir` the snapshot in `source` under the tag `tag`, by hard links where the file
 * system allows.
 */
export async function linkSnapshot(source: string, dir: string, tag: string): Promise<void> {
  const target = join(dir, "snapshots", tag);
  await mkdir(target, { recursive: true });
  for (const name of await readdir(source)) {
    const [from, to] = [join(source, name), join(target, name)];
    try {
      await link(from, to);
    } catch (error) {
      if (!isErrno(error, "EXDEV")) throw error;
      await command("cp", ["--sparse=always", from, to]);
    }
  }
}

async function linkBaked({ baked }: Run, { dir }: ScratchDaemon, from: string, to: string): Promise<string> {
  const source = join(baked, "snapshots", from);
  if (!existsSync(source)) throw new Error(`There is no ${source}. Run node tests/dist/bake.js`);
  await linkSnapshot(source, dir, to);
  return to;
}

/** A guest with Python, numpy and a kernel, and this much memory. */
export async function buildBase(run: Run, daemon: ScratchDaemon, memoryMib: number): Promise<string> {
  const tag = `base-${memoryMib}`;
  if (run.size === "tiny" && memoryMib === bakedMemoryMib) return linkBaked(run, daemon, "python", tag);
  console.error(`building ${tag}`);
  await daemon.forkd.snapshots.build({ tag, recipe: numpyRecipe, memoryMib });
  return tag;
}

/** The smallest guest, one static program: what is measured is the daemon and not the guest. */
export async function buildTiny(run: Run, daemon: ScratchDaemon): Promise<string> {
  if (run.size === "tiny") return linkBaked(run, daemon, "tiny", "tiny");
  await withTinyRoot((rootfs) =>
    daemon.forkd.snapshots.build({ tag: "tiny", rootfs, memoryMib: 96, diskMib: 64 }),
  );
  return "tiny";
}

/** Directory of the snapshot that `spawn` measures. It is kept between runs and built when it is missing. */
export async function numpySnapshot(run: Run): Promise<string> {
  if (run.size === "tiny") return join(run.baked, "snapshots/python");
  await mkdir(run.data, { recursive: true });
  await using daemon = await launchDaemon({ dir: run.data, env: { FORKD_POOL_MEMORY_PERCENT: "0" } });
  await ensureNumpy(daemon.forkd);
  return join(run.data, "snapshots", numpyTag);
}

async function ensureNumpy(forkd: Forkd): Promise<void> {
  const usable = (await forkd.snapshots.list().all()).filter(({ bootable }) => bootable);
  if (usable.some(({ tag }) => tag === numpyTag)) return;
  await forkd.snapshots.build(
    { tag: numpyTag, recipe: numpyRecipe, force: true },
    { onProgress: (event) => console.error(`    ${event.step}: ${event.message}`) },
  );
}
