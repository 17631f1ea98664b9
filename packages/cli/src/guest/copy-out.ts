/**
 * Copies from the guest to the host. The guest is not trusted: names that would leave the target directory
 * are refused, files of a tree are never written through a link, and links are created last.
 */
import { constants } from "node:fs";
import { lstat, mkdir, open, stat, symlink } from "node:fs/promises";
import { join, posix } from "node:path";
import { AppError } from "@forkd/contract/wire";
import type { FileEntry } from "@forkd/contract";
import { usage } from "../options/arguments.ts";
import type { CopyRun } from "./copy-report.ts";
import type { Output } from "../terminal/output.ts";

const { O_CREAT, O_NOFOLLOW, O_TRUNC, O_WRONLY } = constants;
type Link = { readonly path: string; readonly target: string };

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
  const path = intoDirectory && name !== "" ? join(target, name) : target;
  if (entry.type !== "directory") return copyFile(run, { from: source, to: path, entry, flags: 0 });
  const links: Link[] = [];
  await copyDirectory(run, source, path, links);
  for (const link of links) await makeLink(run, link);
}

async function copyDirectory(run: CopyRun, source: string, target: string, links: Link[]): Promise<void> {
  await mkdir(target, { recursive: true });
  if (!(await lstat(target)).isDirectory())
    throw new AppError("already_exists", `"${target}" is not a directory`);
  run.report.directories += 1;
  for (const entry of await run.sandbox.files.list(source, { signal: run.signal })) {
    if (!isPlainName(entry.name))
      throw new AppError("guest_refused", `The guest reports an invalid file name "${entry.name}"`);
    const [from, to] = [posix.join(source, entry.name), join(target, entry.name)];
    if (entry.type === "directory") await copyDirectory(run, from, to, links);
    else if (entry.type === "file") await copyFile(run, { from, to, entry, flags: O_NOFOLLOW });
    else if (entry.type === "symlink" && entry.target !== undefined)
      links.push({ path: to, target: entry.target });
    else run.skip(from, `it is a ${entry.type}`);
  }
}

/** True if the name stays inside the directory that it is joined to. */
export function isPlainName(name: string): boolean {
  return name !== "" && name !== "." && name !== ".." && !/[/\0]/.test(name);
}

type FileCopy = { from: string; to: string; entry: FileEntry; flags: number };

async function copyFile(run: CopyRun, { from, to, entry, flags }: FileCopy): Promise<void> {
  run.progress.update(`Copying ${from}`);
  const content = run.sandbox.files.readStream(from, { signal: run.signal });
  const mode = Number.parseInt(entry.mode, 8) & 0o777;
  const file = await open(to, O_WRONLY | O_CREAT | O_TRUNC | flags, mode).catch((cause: unknown) => {
    throw new AppError("invalid_request", `Cannot write "${to}": ${String(cause)}`, { cause });
  });
  try {
    for await (const chunk of content) {
      await file.writeFile(chunk);
      run.report.bytes += chunk.length;
    }
  } finally {
    await file.close();
  }
  run.report.files += 1;
}

async function makeLink(run: CopyRun, { path, target }: Link): Promise<void> {
  try {
    await symlink(target, path);
  } catch (error) {
    run.skip(path, `cannot create the link: ${String(error)}`);
  }
}

function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (facts) => facts.isDirectory(),
    () => false,
  );
}
