/** Packs files for the guest into a tar archive, as root's files with a fixed time. */
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join, posix } from "node:path";
import type { RecipeFile } from "../recipe/recipe-files.ts";
import { imageTime } from "../rootfs/ext4.ts";
import { copyFiles } from "../rootfs/rootfs-files.ts";
import { runTool } from "../tool.ts";

const common = [
  ...["--create", "--format=posix", "--owner=0", "--group=0", "--numeric-owner"],
  // Otherwise the archive has times of access.
  ...["--pax-option=delete=atime,delete=ctime", `--mtime=@${imageTime}`],
];

type PackContext = { work: string; signal?: AbortSignal | undefined };

/** Everything in `directory`; returns the path of the archive. */
export async function packDirectory(directory: string, { work, signal }: PackContext): Promise<string> {
  const archive = join(work, "files.tar");
  await runTool("tar", [...common, "--sort=name", "-f", archive, "-C", directory, "."], { signal });
  return archive;
}

/**
 * The files of a recipe with their paths in the guest. Directories that the recipe does not have are left out, so
 * that those of the guest stay as they are. Throws `invalid_recipe` if a file has changed since it was read.
 */
export async function packFiles(
  files: readonly RecipeFile[],
  { to, work, signal }: PackContext & { to: string },
): Promise<string> {
  const tree = join(work, "tree");
  await mkdir(tree, { mode: 0o755 });
  const placed = files
    .map((file) => ({ ...file, to: posix.join(to, file.to) }))
    // The root is there in any guest.
    .filter((file) => file.to !== "/");
  await copyFiles(tree, placed, signal);
  const list = join(work, "list");
  await writeFile(list, placed.map((file) => `${file.to.slice(1)}\0`).join(""));
  const archive = join(work, "files.tar");
  const names = ["--no-recursion", "--null", "-T", list];
  await runTool("tar", [...common, "-f", archive, "-C", tree, ...names], { signal });
  await rm(tree, { recursive: true });
  return archive;
}
