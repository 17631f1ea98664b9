/** What stat() says of a file's content: changes whenever the file is written or replaced, not when it is linked. */
import { stat } from "node:fs/promises";
import { isErrno, LruMap } from "@forkd/base";

/** undefined if there is no such file */
export async function stampOf(path: string): Promise<string | undefined> {
  try {
    const facts = await stat(path, { bigint: true });
    return `${facts.dev}:${facts.ino}:${facts.size}:${facts.mtimeNs}`;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}

/** More than the files of all snapshots that are in use at a time; one that is forgotten is read again */
const maxFiles = 10_000;

/**
 * Files whose content is known to match a digest. By inode, so that a file which many snapshots link is read once; a
 * number that the file system gives to a new file takes the old one's place. The least recently used are forgotten.
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
