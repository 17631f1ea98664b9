/** A data directory on a file system of its own, with private copies of shared snapshots. */
import { mkdir, symlink } from "node:fs/promises";
import { join } from "node:path";
import { runCommand, Scope } from "@forkd/base";
import { sharedData } from "./places.ts";

export type OwnDisk = { dataDir: string } & AsyncDisposable;

/** Below `dir`: unmounted when it is disposed. */
export async function ownDisk(
  dir: string,
  kind: { tmpfs: string } | { xfs: string },
  tags: readonly string[],
): Promise<OwnDisk> {
  await using scope = new Scope();
  const dataDir = join(dir, "own");
  await mkdir(dataDir);
  if ("tmpfs" in kind) {
    await runCommand("mount", ["-t", "tmpfs", "-o", `size=${kind.tmpfs}`, "tmpfs", dataDir]);
  } else {
    const image = join(dir, "own.img");
    await runCommand("truncate", ["-s", kind.xfs, image]);
    await runCommand("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
    await runCommand("mount", ["-o", "loop", image, dataDir]);
  }
  scope.defer(async () => void (await runCommand("umount", [dataDir])));
  await mkdir(join(dataDir, "snapshots"));
  for (const tag of tags) {
    const from = join(sharedData, "snapshots", tag);
    await runCommand("cp", ["-r", "--sparse=always", from, join(dataDir, "snapshots", tag)]);
  }
  await symlink(join(sharedData, "images"), join(dataDir, "images"));
  const kept = scope.keep();
  return { dataDir, [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose]() };
}
