/** A data directory for one daemon, with hard links to the shared snapshots, which are fast to make. */
import { cp, link, mkdir, readdir, rename, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { runProgram } from "@forkd/base";
import { sharedData } from "./places.ts";

export async function linkSnapshots(dataDir: string, tags: readonly string[]): Promise<void> {
  await mkdir(join(dataDir, "snapshots"), { recursive: true });
  for (const tag of tags) await linkSnapshot(dataDir, tag);
  // Guests of the shared snapshots trust the CA of the installation that baked them.
  await cp(join(sharedData, "net"), join(dataDir, "net"), { recursive: true });
  // Images are content-addressed and never change.
  await symlink(join(sharedData, "images"), join(dataDir, "images"));
}

/** Gives a data directory its own links to the shared images, so that a daemon can remove unused ones. */
export async function ownImages(dataDir: string): Promise<void> {
  await rm(join(dataDir, "images"));
  await runProgram("cp", ["-al", join(sharedData, "images"), join(dataDir, "images")]);
}

/** Links one shared snapshot, under another tag if `tag` is given. */
export async function linkSnapshot(dataDir: string, baked: string, tag = baked): Promise<void> {
  const target = join(dataDir, "snapshots", tag);
  await mkdir(target);
  for (const name of await readdir(join(sharedData, "snapshots", baked))) {
    await link(join(sharedData, "snapshots", baked, name), join(target, name));
  }
}

/** Replaces one file of a linked snapshot by a copy, so that a test can damage it. */
export async function ownFile(dataDir: string, tag: string, name: string): Promise<string> {
  const path = join(dataDir, "snapshots", tag, name);
  const copy = `${path}.copy`;
  await cp(path, copy);
  await rename(copy, path);
  return path;
}
