/**
 * Finds and removes images that no snapshot and no build uses, cached packages and layers, and what ended builds
 * have left.
 */
import type { Dirent, Stats } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, readJson } from "@forkd/base";
import { z } from "zod";
import { isAbandoned, removeEntry } from "./cache.ts";
import { isLeased } from "./lease.ts";

const kinds = ["rootfs", "kernel", "initramfs", "layers"] as const;
type ImageKind = (typeof kinds)[number];

export type UnusedImage = {
  /** packages, blobs: package files and layers of container images for later builds */
  kind: ImageKind | "packages" | "blobs";
  /** its kind and the beginning of its digest */
  name: string;
  /** the recipe, file or package that it was made from; absent if it is unknown */
  source?: string | undefined;
  bytes: number;
};

type Entry = UnusedImage & { directory: string };

/** What the info.json of all kinds have in common. */
const infoSchema = z.looseObject({
  digest: z.string(),
  source: z.string().optional(),
  version: z.string().optional(),
  isState: z.boolean().optional(),
});

const shownDigits = 12;

/**
 * Removes the unused images and returns them; on a dry run it only returns them. `isUsed` says if a snapshot
 * names the digest of an image. A root file system that a snapshot links is used, too.
 */
export async function removeUnusedImages(
  imageDir: string,
  { isUsed, dryRun }: { isUsed: (kind: ImageKind, digest: string) => boolean; dryRun: boolean },
): Promise<UnusedImage[]> {
  const removed: UnusedImage[] = [];
  for (const kind of kinds) {
    for (const name of await namesIn(join(imageDir, kind))) {
      const entry = await unused(join(imageDir, kind, name), kind, isUsed);
      if (entry === undefined) continue;
      const { directory, ...image } = entry;
      if (dryRun || (await removeEntry(directory))) removed.push(image);
    }
  }
  for (const name of await namesIn(join(imageDir, "packages"))) {
    const directory = join(imageDir, "packages", name);
    const { bytes } = await contentOf(directory);
    if (isLeased(directory) || bytes === 0) continue;
    if (dryRun || (await removeEntry(directory)))
      removed.push({ kind: "packages", name: `packages/${name}`, bytes });
  }
  for (const name of await namesIn(join(imageDir, "blobs"))) {
    const layer = await unusedLayer(join(imageDir, "blobs", name));
    if (layer && (dryRun || (await removeEntry(join(imageDir, "blobs", name))))) removed.push(layer);
  }
  return removed;
}

/** A blob of a container image, or a temporary copy of an archive that a process has left. */
async function unusedLayer(directory: string): Promise<UnusedImage | undefined> {
  const name = directory.slice(directory.lastIndexOf("/") + 1);
  if (isLeased(directory) || (name.startsWith(".") && !isAbandoned(name))) return undefined;
  const { bytes } = await contentOf(directory);
  const source = infoSchema.safeParse(await readJson(join(directory, "info.json"))).data?.source;
  const shown = name.startsWith(".") ? name : name.slice(0, shownDigits);
  return { kind: "blobs", name: `blobs/${shown}`, bytes, ...(source !== undefined && { source }) };
}

async function unused(
  directory: string,
  kind: ImageKind,
  isUsed: (kind: ImageKind, digest: string) => boolean,
): Promise<Entry | undefined> {
  const name = directory.slice(directory.lastIndexOf("/") + 1);
  if (name.startsWith(".")) {
    if (!isAbandoned(name)) return undefined;
    const { bytes } = await contentOf(directory);
    return { directory, kind, name: `${kind}/${name}`, bytes };
  }
  const parsed = infoSchema.safeParse(await readJson(join(directory, "info.json")));
  const { isLinked, bytes } = await contentOf(directory);
  const isNeeded = parsed.success && isUsed(kind, parsed.data.digest);
  // A state has files of its snapshot, which does not need the state.
  const isShared = isLinked && parsed.data?.isState !== true;
  if (isNeeded || isShared || isLeased(directory)) return undefined;
  const source = parsed.data?.source ?? parsed.data?.version;
  return { directory, kind, name: `${kind}/${name.slice(0, shownDigits)}`, bytes, ...(source && { source }) };
}

/** The bytes that removing a directory frees, and whether a file in it has another link. */
async function contentOf(directory: string): Promise<{ bytes: number; isLinked: boolean }> {
  let bytes = 0;
  let isLinked = false;
  for (const entry of await entriesIn(directory)) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) {
      const inner = await contentOf(path);
      bytes += inner.bytes;
      isLinked ||= inner.isLinked;
    } else if (entry.isFile()) {
      const facts = await statIfThere(path);
      if (facts === undefined) continue;
      if (facts.nlink > 1) isLinked = true;
      else bytes += facts.blocks * 512;
    }
  }
  return { bytes, isLinked };
}

/** Undefined if another collection has removed the file. */
async function statIfThere(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

async function namesIn(directory: string): Promise<string[]> {
  return (await entriesIn(directory)).filter((entry) => entry.isDirectory()).map(({ name }) => name);
}

/** Empty where there is no directory, or one that only the root of a namespace may read. */
async function entriesIn(directory: string): Promise<Dirent[]> {
  try {
    return await readdir(directory, { withFileTypes: true });
  } catch (error) {
    if (isErrno(error, "ENOENT", "EACCES", "ENOTDIR")) return [];
    throw error;
  }
}
