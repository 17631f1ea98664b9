/** A stamp from stat() identifies a file's content: it changes when the file is written, not when linked. */
import type { BigIntStats } from "node:fs";
import { stat } from "node:fs/promises";
import { isErrno, LruMap } from "@forkd/base";

/** undefined if the file does not exist */
export async function stampOf(path: string): Promise<string | undefined> {
  try {
    return stampIn(await stat(path, { bigint: true }));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}

export function stampIn({ dev, ino, size, mtimeNs }: BigIntStats): string {
  return `${dev}:${ino}:${size}:${mtimeNs}`;
}

/** `path`: one of the links to it, if one is known */
type VerifiedFile = { stamp: string; digest: string; path: string | undefined };

/** More than the files of all snapshots in use at a time. A file without an entry is read again. */
const maxFiles = 10_000;

/**
 * Files whose content is known to match a digest. Keyed by inode, so that a file that many snapshots link is
 * read once and a new file with a reused inode number replaces the old entry. Drops the least recently used
 * entries.
 */
export class VerifiedFiles {
  readonly #files: LruMap<string, VerifiedFile>;
  /** called when a file was verified */
  onAdd: (() => void) | undefined;

  constructor(options: { maxFiles?: number } = {}) {
    this.#files = new LruMap(options.maxFiles ?? maxFiles);
  }

  has(stamp: string, digest: string, path?: string): boolean {
    const known = this.#files.peek(inodeOf(stamp));
    if (known?.stamp !== stamp || known.digest !== digest) return false;
    this.#files.set(inodeOf(stamp), { ...known, path: path ?? known.path });
    return true;
  }

  add(stamp: string, digest: string, path?: string): void {
    this.#files.set(inodeOf(stamp), { stamp, digest, path });
    this.onAdd?.();
  }

  /** Those whose path is known, the least recently used first. */
  entries(): { path: string; stamp: string; digest: string }[] {
    return [...this.#files.keys()].flatMap((inode) => {
      const { path, stamp = "", digest = "" } = this.#files.peek(inode) ?? {};
      return path === undefined ? [] : { path, stamp, digest };
    });
  }

  delete(stamp: string): void {
    this.#files.delete(inodeOf(stamp));
  }
}

function inodeOf(stamp: string): string {
  return stamp.split(":", 2).join(":");
}
