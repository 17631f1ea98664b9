/**
 * A directory of the guest with all that is below it, as the guest reports it. The guest is not trusted: it
 * can invent names, and directories without end.
 */
import { posix } from "node:path";
import { advice, AppError } from "@forkd/contract/wire";
import type { FileEntry } from "@forkd/sdk";
import type { CopyRun } from "./copy-report.ts";
import { inParallel } from "./in-parallel.ts";

const maxDepth = 256;
const maxEntries = 500_000;

/** `path` is relative to the directory, with "/" between its names. */
export type GuestItem = { readonly path: string; readonly entry: FileEntry };
type GuestTree = {
  /** parents before their children; the first one is "" */
  readonly directories: readonly string[];
  readonly files: readonly GuestItem[];
  readonly links: readonly GuestItem[];
};

/** Skips other kinds of files. Throws `guest_refused` for a tree that no honest guest would have. */
export async function scanGuest(run: CopyRun, root: string): Promise<GuestTree> {
  const directories: string[] = [];
  const files: GuestItem[] = [];
  const links: GuestItem[] = [];
  let count = 0;
  const place = (path: string, entry: FileEntry, next: string[]) => {
    if (!isPlainName(entry.name)) throw refused(`The guest reports an invalid file name "${entry.name}"`);
    if (++count > maxEntries) throw refused(`"${root}" has more than ${maxEntries} entries`);
    if (entry.type === "directory") next.push(path);
    else if (entry.type === "file") files.push({ path, entry });
    else if (entry.type === "symlink" && entry.target !== undefined) links.push({ path, entry });
    else run.skip(posix.join(root, path), `it is a ${entry.type}`);
  };
  let level = [""];
  for (let depth = 0; level.length > 0; depth += 1) {
    if (depth > maxDepth) throw refused(`"${root}" has more than ${maxDepth} levels of directories`);
    directories.push(...level);
    const next: string[] = [];
    await inParallel(level, async (directory) => {
      const entries = await run.sandbox.files.list(posix.join(root, directory), { signal: run.signal });
      for (const entry of entries) place(posix.join(directory, entry.name), entry, next);
    });
    level = next;
  }
  return { directories, files, links };
}

/** True if the name stays inside the directory that it is joined to. */
export function isPlainName(name: string): boolean {
  return name !== "" && name !== "." && name !== ".." && !/[/\0]/.test(name);
}

/**
 * True if the link at `path` of a copied directory leads to something in it. ".." may only come first: after
 * the name of another link it would start from where that link leads.
 */
export function staysInside(path: string, target: string): boolean {
  if (target === "" || target.startsWith("/")) return false;
  const names = target.split("/").filter((name) => name !== "" && name !== ".");
  const ups = names.findIndex((name) => name !== "..");
  const first = ups < 0 ? names.length : ups;
  return first <= path.split("/").length - 1 && !names.slice(first).includes("..");
}

function refused(message: string): AppError {
  return new AppError("guest_refused", message, {
    remedy: advice("Copy a smaller part of it, or an archive made in the guest."),
  });
}
