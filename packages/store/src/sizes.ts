/** Disk usage of a snapshot. */
import type { Stats } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { imageName } from "./kept-image.ts";
import { attachmentRoles } from "./manifest.ts";
import { snapshotDisks, snapshotFile, type StoredSnapshot } from "./snapshot.ts";

const blockBytes = 512;

/** Files of a snapshot, and the flat image of its memory if it is in the cache. */
type Sized = { snapshot: StoredSnapshot; flatImage: string };

export type SnapshotSizes = {
  /** sum of the files' lengths */
  logicalBytes: number;
  /** blocks of files that no other snapshot links */
  ownPhysicalBytes: number;
  /** blocks of files that other snapshots link too */
  sharedPhysicalBytes: number;
  /** what removing it would free: its own files and its flat image, unless another snapshot links that */
  ownBytes: number;
  /** own, shared and flat image */
  totalBytes: number;
};

/** Disk usage of a file; undefined if it does not exist. */
export async function physicalBytes(path: string): Promise<number | undefined> {
  const file = await statIfThere(path);
  return file && file.blocks * blockBytes;
}

async function statIfThere(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

export async function sizesOf({ snapshot, flatImage }: Sized): Promise<SnapshotSizes> {
  const sizes = { logicalBytes: 0, ownPhysicalBytes: 0, sharedPhysicalBytes: 0 };
  for (const { size, blocks, nlink } of await Promise.all(filesOf(snapshot).map((path) => stat(path)))) {
    sizes.logicalBytes += size;
    sizes[nlink > 1 ? "sharedPhysicalBytes" : "ownPhysicalBytes"] += blocks * blockBytes;
  }
  const images = await linkedFiles(imagesOf({ snapshot, flatImage }));
  const sum = (files: readonly LinkedFile[]) => files.reduce((total, { bytes }) => total + bytes, 0);
  return {
    ...sizes,
    ownBytes: sizes.ownPhysicalBytes + sum(images.filter(hasAllLinks)),
    totalBytes: sizes.ownPhysicalBytes + sizes.sharedPhysicalBytes + sum(images),
  };
}

/** What removing all of these would free: files whose every link is among theirs. */
export async function freedBytes(all: readonly Sized[]): Promise<number> {
  const paths = all.flatMap((each) => [...filesOf(each.snapshot), ...imagesOf(each)]);
  const freed = (await linkedFiles(paths)).filter(hasAllLinks);
  return freed.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The whole memory of a layered snapshot, in the cache or kept, which may be one file with two links. */
function imagesOf({ snapshot, flatImage }: Sized): string[] {
  return [flatImage, join(snapshot.dir, imageName)];
}

/** A file and how many of the paths are links to it. */
type LinkedFile = { found: number; nlink: number; bytes: number };

function hasAllLinks({ found, nlink }: LinkedFile): boolean {
  return found >= nlink;
}

async function linkedFiles(paths: readonly string[]): Promise<LinkedFile[]> {
  const files = new Map<string, LinkedFile>();
  for (const path of paths) {
    const file = await statIfThere(path);
    if (!file) continue;
    const { dev, ino, nlink, blocks } = file;
    const found = (files.get(`${dev}:${ino}`)?.found ?? 0) + 1;
    files.set(`${dev}:${ino}`, { found, nlink, bytes: blocks * blockBytes });
  }
  return [...files.values()];
}

function filesOf(snapshot: StoredSnapshot): string[] {
  const memory = snapshot.manifest.files.layer === undefined ? "memory" : "layer";
  const attached = attachmentRoles.filter((role) => snapshot.manifest.files[role] !== undefined);
  const roles = [memory, "devices", "rootfs", ...attached] as const;
  return [...roles.map((role) => snapshotFile(snapshot, role)), ...snapshotDisks(snapshot)];
}
