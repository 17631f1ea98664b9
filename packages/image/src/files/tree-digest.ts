/** The digest of a directory tree: names, types, modes, owners, times and content. */
import { createHash } from "node:crypto";
import { lstat, readdir, readlink } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError, errorMessage } from "@forkd/contract";
import { sha256File } from "./digest.ts";
import { throwIfCancelled } from "../context.ts";

const maxEntries = 5_000_000;

/** Throws `invalid_image` for a file that cannot be read. */
export async function digestTree(
  root: string,
  signal?: AbortSignal,
): Promise<{ digest: string; sizeBytes: number }> {
  const hash = createHash("sha256");
  let entries = 0;
  let sizeBytes = 0;
  const visit = async (path: string, name: string): Promise<void> => {
    throwIfCancelled(signal);
    if (++entries > maxEntries)
      throw new AppError("invalid_image", `Cannot import "${root}": it has more than ${maxEntries} files`);
    const info = await lstat(path);
    const content = info.isSymbolicLink()
      ? await readlink(path)
      : info.isFile()
        ? await sha256File(path, signal)
        : "";
    const device = info.isBlockDevice() || info.isCharacterDevice() ? info.rdev : 0;
    hash.update(`${JSON.stringify([name, info.mode, info.uid, info.gid, device, info.mtimeMs, content])}\n`);
    sizeBytes += info.isFile() ? info.blocks * 512 : 4096;
    if (!info.isDirectory()) return;
    for (const each of (await readdir(path)).sort()) await visit(join(path, each), `${name}/${each}`);
  };
  try {
    await visit(root, "");
  } catch (error) {
    throwIfCancelled(signal);
    if (!isErrno(error, "EACCES", "EPERM", "ENOENT")) throw error;
    const why = errorMessage(error);
    throw new AppError("invalid_image", `Cannot import "${root}": ${why}`, {
      remedy: advice("Run the daemon as root, or import a tar archive."),
      cause: error,
    });
  }
  return { digest: hash.digest("hex"), sizeBytes };
}
