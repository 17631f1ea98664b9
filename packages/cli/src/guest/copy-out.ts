/**
 * Copies from the guest to the host. The guest is not trusted: names that would leave the target directory
 * are refused, no file whose name came from the guest is written through a link, links are created last and
 * only if they stay in the copied directory, and the number of bytes is bounded.
 */
import { constants } from "node:fs";
import { lstat, mkdir, open, stat, statfs, symlink, type FileHandle } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { advice, AppError, errorMessage } from "@forkd/contract/wire";
import type { FileEntry } from "@forkd/sdk";
import { usage } from "../options/arguments.ts";
import type { Output } from "../terminal/output.ts";
import { formatBytes } from "../terminal/table.ts";
import { addBytes, addFile, type CopyRun } from "./copy-report.ts";
import { scanGuest, staysInside, type GuestItem } from "./guest-tree.ts";
import { inParallel } from "./in-parallel.ts";

const { O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_TRUNC, O_WRONLY } = constants;
/** How much files may grow while they are copied; files of /proc have content but no size. */
const minGrowth = 64 * 1024 * 1024;

export async function copyToStandardOutput(run: CopyRun, path: string, out: Output): Promise<void> {
  const entry = await run.sandbox.files.stat(path, { follow: true, signal: run.signal });
  if (entry.type === "directory") throw usage(`"${path}" is a directory: only a file can go to stdout`);
  for await (const chunk of run.sandbox.files.readStream(path, { signal: run.signal }))
    await out.bytes(chunk);
}

export async function copyOut(run: CopyRun, source: string, target: string): Promise<void> {
  const entry = await run.sandbox.files.stat(source, { follow: true, signal: run.signal });
  const intoDirectory = target.endsWith("/") || (await isDirectory(target));
  const name = posix.basename(posix.normalize(source));
  const isNamedByGuest = intoDirectory && name !== "";
  const path = isNamedByGuest ? join(target, name) : target;
  if (entry.type === "directory") return copyDirectory(run, source, path);
  const max = await allowance(run, entry.size, dirname(path));
  const openTarget = isNamedByGuest ? openInside : openChosen;
  await copyFile(run, { from: source, to: path, entry, max, total: 1, open: openTarget });
}

async function copyDirectory(run: CopyRun, source: string, target: string): Promise<void> {
  run.progress.update(`Listing ${source}`);
  const { directories, files, links } = await scanGuest(run, source);
  const size = files.reduce((sum, { entry }) => sum + entry.size, 0);
  const max = await allowance(run, size, dirname(target));
  for (const directory of directories) await makeDirectory(run, join(target, directory));
  await inParallel(files, ({ path, entry }) => {
    const [from, to] = [posix.join(source, path), join(target, path)];
    return copyFile(run, { from, to, entry, max, total: files.length, open: openInside });
  });
  for (const link of links) await makeLink(run, target, link);
}

/** How many bytes may be copied when the guest reports `size` bytes. Throws `disk_full` if they do not fit. */
async function allowance(run: CopyRun, size: number, near: string): Promise<number> {
  const free = await freeBytes(near);
  if (size > free) {
    const text = `Cannot copy ${formatBytes(size)}: ${formatBytes(free)} are free in "${near}"`;
    throw new AppError("disk_full", text, {
      details: { needed_bytes: size, free_bytes: free },
      remedy: advice("Free some space, or copy to another disk."),
    });
  }
  return run.maxBytes ?? Math.min(free, size + Math.max(minGrowth, size / 4));
}

/** Of the nearest directory that exists. */
async function freeBytes(path: string): Promise<number> {
  const facts = await statfs(path).catch(() => undefined);
  if (facts !== undefined) return facts.bavail * facts.bsize;
  return dirname(path) === path ? Infinity : freeBytes(dirname(path));
}

async function makeDirectory(run: CopyRun, path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  if (!(await lstat(path)).isDirectory())
    throw new AppError("already_exists", `"${path}" is not a directory`);
  run.report.directories += 1;
}

type FileCopy = {
  readonly from: string;
  readonly to: string;
  readonly entry: FileEntry;
  /** most bytes of the whole copy */
  readonly max: number;
  readonly total: number;
  readonly open: (path: string, mode: number) => Promise<FileHandle>;
};

async function copyFile(run: CopyRun, copy: FileCopy): Promise<void> {
  const content = run.sandbox.files.readStream(copy.from, { signal: run.signal });
  await using file = await copy.open(copy.to, Number.parseInt(copy.entry.mode, 8) & 0o777);
  for await (const chunk of content) {
    addBytes(run, chunk.length, copy.max);
    await file.writeFile(chunk);
  }
  addFile(run, copy.total);
}

/** Opens a path that the user chose, links and devices included. */
async function openChosen(path: string, mode: number): Promise<FileHandle> {
  return open(path, O_WRONLY | O_CREAT | O_TRUNC, mode).catch((cause: unknown) => {
    throw cannotWrite(path, errorMessage(cause), cause);
  });
}

/** Opens a path whose last name the guest chose: a new file, or a regular file that is there. */
async function openInside(path: string, mode: number): Promise<FileHandle> {
  const flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK;
  const file = await open(path, flags, mode).catch((cause: unknown) => {
    const isLink = cause instanceof Error && "code" in cause && cause.code === "ELOOP";
    throw cannotWrite(path, isLink ? "it is a symbolic link" : errorMessage(cause), cause);
  });
  try {
    if (!(await file.stat()).isFile()) throw cannotWrite(path, "it is not a regular file");
    await file.truncate(0);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

function cannotWrite(path: string, why: string, cause?: unknown): AppError {
  return new AppError("invalid_request", `Cannot write "${path}": ${why}`, { cause });
}

async function makeLink(run: CopyRun, root: string, { path, entry }: GuestItem): Promise<void> {
  const target = entry.target ?? "";
  const place = join(root, path);
  if (!run.keepLinks && !staysInside(path, target))
    return run.skip(place, `its link leads out of the copied directory, to "${target}"; --links keeps it`);
  await symlink(target, place).catch((error: unknown) =>
    run.skip(place, `cannot create the link: ${errorMessage(error)}`),
  );
}

function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  );
}
