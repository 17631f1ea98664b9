/** Copies from the host into the guest. Files keep their mode; links to files are followed. */
import { createReadStream } from "node:fs";
import { lstat, readdir, stat } from "node:fs/promises";
import { basename, join, posix, resolve } from "node:path";
import { AppError } from "@forkd/contract/wire";
import type { Sandbox } from "@forkd/sdk";
import { usage } from "../options/arguments.ts";
import { copyByArchive } from "./copy-in-archive.ts";
import { addFile, type CopyRun } from "./copy-report.ts";
import { inParallel } from "./in-parallel.ts";
import { unreadable } from "../terminal/unreadable.ts";

export async function copyStandardInput(run: CopyRun, path: string): Promise<void> {
  if (await isGuestDirectory(run.sandbox, path))
    throw usage(`"${path}" is a directory: give the path of a file`);
  const entry = await run.sandbox.files.write(path, process.stdin, { signal: run.signal });
  run.report.bytes += entry.size;
  addFile(run, 1);
}

export async function copyIn(run: CopyRun, source: string, target: string): Promise<void> {
  const facts = await stat(source).catch((cause: unknown) => {
    throw unreadable(source, cause);
  });
  const intoDirectory = target.endsWith("/") || (await isGuestDirectory(run.sandbox, target));
  const path = intoDirectory ? posix.join(target, basename(resolve(source))) : target;
  const { levels, files } = facts.isDirectory()
    ? await scan(run, { from: source, to: path, mode: facts.mode })
    : { levels: [], files: [{ from: source, to: path, mode: facts.mode, size: facts.size }] };
  // Parents before their children, so that each gets its own mode.
  for (const level of levels) await inParallel(level, (directory) => makeDirectory(run, directory));
  const small = files.filter(({ to, size }) => size <= smallBytes && to.startsWith("/"));
  const isPacked = small.length >= manyFiles && (await copyByArchive(run, small, files.length));
  const packed = new Set(isPacked ? small : []);
  await inParallel(
    files.filter((file) => !packed.has(file)),
    (file) => copyFile(run, file, files.length),
  );
}

type Item = { readonly from: string; readonly to: string; readonly mode: number };
type FileItem = Item & { readonly size: number };
type Scanned = { readonly levels: Item[][]; readonly files: FileItem[] };

/** So many files of at most this size go as one archive; for fewer a command in the guest takes longer. */
const manyFiles = 16;
const smallBytes = 256 * 1024;

/** The directories of a tree by depth, and its files. */
async function scan(run: CopyRun, root: Item): Promise<Scanned> {
  const levels: Item[][] = [];
  const files: FileItem[] = [];
  for (let level = [root]; level.length > 0;) {
    levels.push(level);
    const next: Item[] = [];
    for (const directory of level) {
      for (const name of await readdir(directory.from)) {
        const [from, to] = [join(directory.from, name), posix.join(directory.to, name)];
        const isLink = (await lstat(from)).isSymbolicLink();
        const facts = await stat(from).catch(() => undefined); // a broken link
        if (facts?.isFile()) files.push({ from, to, mode: facts.mode, size: facts.size });
        else if (facts?.isDirectory() && !isLink) next.push({ from, to, mode: facts.mode });
        else
          run.skip(
            from,
            isLink ? "it is a link that leads to no file" : "it is neither a file nor a directory",
          );
      }
    }
    level = next;
  }
  return { levels, files };
}

async function makeDirectory(run: CopyRun, { to, mode }: Item): Promise<void> {
  await run.sandbox.files.mkdir(to, { mode: octal(mode), parents: true, signal: run.signal });
  run.report.directories += 1;
}

async function copyFile(run: CopyRun, { from, to, mode }: Item, total: number): Promise<void> {
  const options = { mode: octal(mode), signal: run.signal };
  const entry = await run.sandbox.files.write(to, createReadStream(from), options);
  run.report.bytes += entry.size;
  addFile(run, total);
}

async function isGuestDirectory(sandbox: Sandbox, path: string): Promise<boolean> {
  try {
    return (await sandbox.files.stat(path, { follow: true })).type === "directory";
  } catch (error) {
    if (error instanceof AppError && error.code === "file_not_found") return false;
    throw error;
  }
}

function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, "0");
}
