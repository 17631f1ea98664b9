/** Lists a tree of files in a guest. */
import type { FileEntry } from "@forkd/contract";
import type { Forkd } from "@forkd/sdk";

type Tree = {
  readonly id: string;
  readonly path: string;
  /** 1: only the directory itself. */
  readonly depth: number;
  /** Entries at most. */
  readonly limit: number;
  readonly user?: string | undefined;
  /** Directories whose content is left out. */
  readonly skip?: ReadonlySet<string> | undefined;
};

/** Directories that are listed at the same time. */
const parallel = 8;

/** Lists directory by directory, nearest first. Links are not followed. */
export async function walk(
  { forkd, signal }: { readonly forkd: Forkd; readonly signal: AbortSignal },
  { id, path: root, depth, limit, user, skip }: Tree,
): Promise<{ entries: FileEntry[]; truncated: boolean }> {
  const entries: FileEntry[] = [];
  let level = [root];
  for (let below = depth; level.length > 0; below--) {
    const next: string[] = [];
    for (let at = 0; at < level.length; at += parallel) {
      const lists = level
        .slice(at, at + parallel)
        .map((path) => forkd.call("listFiles", { id, path, user }, { signal }));
      for (const entry of (await Promise.all(lists)).flat()) {
        if (entries.length >= limit) return { entries, truncated: true };
        entries.push(entry);
        const isBelow = entry.type === "directory" && below > 1 && skip?.has(entry.path) !== true;
        if (isBelow) next.push(entry.path);
      }
    }
    level = next;
  }
  return { entries, truncated: false };
}
