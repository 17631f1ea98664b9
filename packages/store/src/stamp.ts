/** What stat() says of a file's content: changes whenever the file is written or replaced, not when it is linked. */
import { stat } from "node:fs/promises";
import { isErrno } from "@forkd/base";

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

/**
 * Files whose content is known to match a digest. By inode, so that a file which many snapshots link is read once; a
 * number that the file system gives to a new file takes the old one's place.
 */
export class VerifiedFiles {
  readonly #digests = new Map<string, string>();

  has(stamp: string, digest: string): boolean {
    return this.#digests.get(inodeOf(stamp)) === `${stamp} ${digest}`;
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
