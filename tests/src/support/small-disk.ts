/** A data directory on its own small file system, with private copies of shared snapshots. */
import { statfsSync } from "node:fs";
import { mkdir, open, symlink } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, runProgram, Scope } from "@forkd/base";
import { sharedData } from "./places.ts";

export type OwnDisk = { dataDir: string } & AsyncDisposable;

/** Mounts a file system below `dir`; disposal unmounts it. */
export async function ownDisk(
  dir: string,
  kind: { tmpfs: string } | { xfs: string },
  tags: readonly string[],
): Promise<OwnDisk> {
  await using scope = new Scope();
  const dataDir = join(dir, "own");
  await mkdir(dataDir);
  if ("tmpfs" in kind) {
    await runProgram("mount", ["-t", "tmpfs", "-o", `size=${kind.tmpfs}`, "tmpfs", dataDir]);
  } else {
    const image = join(dir, "own.img");
    await runProgram("truncate", ["-s", kind.xfs, image]);
    await runProgram("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
    await runProgram("mount", ["-o", "loop", image, dataDir]);
  }
  scope.defer(async () => void (await runProgram("umount", [dataDir])));
  await mkdir(join(dataDir, "snapshots"));
  for (const tag of tags) {
    const from = join(sharedData, "snapshots", tag);
    await runProgram("cp", ["-r", "--sparse=always", from, join(dataDir, "snapshots", tag)]);
  }
  await symlink(join(sharedData, "images"), join(dataDir, "images"));
  const kept = scope.keep();
  return { dataDir, [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose]() };
}

export function fillerPath(dataDir: string): string {
  return join(dataDir, "filler");
}

/** Fills the file system except for `leaveBytes`, and returns the path of the file that fills it. */
export async function fillUp(dataDir: string, leaveBytes: number): Promise<string> {
  const path = fillerPath(dataDir);
  await using file = await open(path, "w");
  const piece = Buffer.alloc(1 << 20);
  for (let at = 0; ;) {
    // The daemon writes too, so any write may fail.
    const { bavail, bsize } = statfsSync(dataDir);
    const bytes = Math.min(piece.length, bavail * bsize - leaveBytes);
    if (bytes <= 0) return path;
    try {
      at += (await file.write(piece, 0, bytes, at)).bytesWritten;
    } catch (error) {
      if (!isErrno(error, "ENOSPC")) throw error;
    }
  }
}
