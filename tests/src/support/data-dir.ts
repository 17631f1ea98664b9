/** A data directory for one daemon, with hard links to the shared snapshots: made in no time, private to its owner. */
import { cp, link, mkdir, readdir, rename, symlink } from "node:fs/promises";
import { join } from "node:path";
import { sharedData } from "./places.ts";

export async function linkSnapshots(dataDir: string, tags: readonly string[]): Promise<void> {
  await mkdir(join(dataDir, "snapshots"), { recursive: true });
  for (const tag of tags) await linkSnapshot(dataDir, tag);
  // Images are content-addressed and only ever added to.
  await symlink(join(sharedData, "images"), join(dataDir, "images"));
}

/** One more, under a tag of its own where another is given. */
export async function linkSnapshot(dataDir: string, baked: string, tag = baked): Promise<void> {
  const target = join(dataDir, "snapshots", tag);
  await mkdir(target);
  for (const name of await readdir(join(sharedData, "snapshots", baked))) {
    await link(join(sharedData, "snapshots", baked, name), join(target, name));
  }
}

/** Makes one file of a linked snapshot its own, so that a test may spoil it. */
export async function ownFile(dataDir: string, tag: string, name: string): Promise<string> {
  const path = join(dataDir, "snapshots", tag, name);
  const copy = `${path}.copy`;
  await cp(path, copy);
  await rename(copy, path);
  return path;
}
