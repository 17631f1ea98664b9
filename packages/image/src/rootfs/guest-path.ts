/** Resolves paths of a guest inside its directory tree on the host. */
import { mkdir, readlink } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";

const maxLinks = 40;

/**
 * The host path of `path` in the tree `root`. Links are followed as in the guest: an absolute link
 * (`/var/run` → `/run`) stays in the tree. Creates missing directories. Does not follow the last part.
 */
export async function resolveInTree(root: string, path: string): Promise<string> {
  const left = splitPath(path);
  const last = left.pop();
  if (last === undefined || last === "..") throw new RangeError(`Cannot place a file at "${path}"`);
  let done: string[] = [];
  let links = 0;
  while (left.length > 0) {
    const part = left.shift() ?? "";
    if (part === "..") {
      done.pop();
      continue;
    }
    const target = await linkOrDirectory(join(root, ...done, part));
    if (target === undefined) {
      done.push(part);
      continue;
    }
    if (++links > maxLinks) throw new RangeError(`Cannot place a file at "${path}": too many links`);
    if (target.startsWith("/")) done = [];
    left.unshift(...splitPath(target));
  }
  return join(root, ...done, last);
}

/** The target of a link; undefined for a directory, which is created if it is missing. */
async function linkOrDirectory(path: string): Promise<string | undefined> {
  try {
    return await readlink(path);
  } catch (error) {
    if (isErrno(error, "ENOENT")) await mkdir(path, { mode: 0o755 });
    // EINVAL: not a link
    else if (!isErrno(error, "EINVAL")) throw error;
    return undefined;
  }
}

function splitPath(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".");
}
