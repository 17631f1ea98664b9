/** A stamp from stat() identifies a file's content: it changes when the file is written, not when linked. */
import { stat } from "node:fs/promises";
import { isErrno, LruMap } from "@forkd/base";

/** undefined if the file does not exist */
export async function stampOf(path: string): Promise<string | undefined> {
  try {
    const facts = await stat(path, { bigint: true });
    return `${facts.dev}:${facts.ino}:${facts.size}:${facts.mtimeNs}`;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}

/** More than the files of all snapshots in use at a time. A file without an entry is read again. */
const maxFiles = 10_000;

/**
 * Files whose content is known to match a digest. Keyed by inode, so that a file that many snapshots link is
 * read once and a new file with a reused inode number replaces the old entry. Drops the least recently used
 * entries.
 */
export class VerifiedFiles {
  readonly #digests: LruMap<string, string>;

  constructor(options: { maxFiles?: number } = {}) {
    this.#digests = new LruMap(options.maxFiles ?? maxFiles);
  }

  has(stamp: string, digest: string): boolean {
    if (this.#digests.peek(inodeOf(stamp)) !== `${stamp} ${digest}`) return false;
    this.add(stamp, digest);
    return true;
  }

  add(stamp: string, digest: string): void {
    this.#digests.set(inodeOf(stamp), `${stamp} ${digest}`);
  }

  delete(stamp: string): void {
    this.#digests.delete(inodeOf(stamp));
  }
}

function inodeOf(stamp: string): string {
  return stamp.split(":", 2).join(":");
}
