/** Copies from the host into the guest. Files keep their mode; links to files are followed. */
import { createReadStream } from "node:fs";
import { lstat, readdir, stat } from "node:fs/promises";
import { basename, join, posix, resolve } from "node:path";
import { AppError } from "@forkd/contract/wire";
import type { Sandbox } from "@forkd/sdk";
import { usage } from "../options/arguments.ts";
import type { CopyReport, CopyRun } from "./copy-report.ts";

export async function copyStandardInput(run: CopyRun, path: string): Promise<void> {
  if (await isGuestDirectory(run.sandbox, path))
    throw usage(`"${path}" is a directory: give the path of a file`);
  const entry = await run.sandbox.files.write(path, process.stdin, { signal: run.signal });
  addFile(run.report, entry.size);
}

export async function copyIn(run: CopyRun, source: string, target: string): Promise<void> {
  const facts = await stat(source).catch((cause: unknown) => {
    throw new AppError("file_not_found", `Cannot read "${source}"`, { cause });
  });
  const intoDirectory = target.endsWith("/") || (await isGuestDirectory(run.sandbox, target));
  const path = intoDirectory ? posix.join(target, basename(resolve(source))) : target;
  if (facts.isDirectory()) await copyDirectory(run, source, path);
  else await copyFile(run, source, path);
}

async function copyDirectory(run: CopyRun, source: string, target: string): Promise<void> {
  const { mode } = await stat(source);
  await run.sandbox.files.mkdir(target, { mode: octal(mode), parents: true, signal: run.signal });
  run.report.directories += 1;
  for (const name of await readdir(source)) {
    const [from, to] = [join(source, name), posix.join(target, name)];
    const isLink = (await lstat(from)).isSymbolicLink();
    const facts = await stat(from).catch(() => undefined); // a broken link
    if (facts?.isFile()) await copyFile(run, from, to);
    else if (facts?.isDirectory() && !isLink) await copyDirectory(run, from, to);
    else
      run.skip(from, isLink ? "it is a link that leads to no file" : "it is neither a file nor a directory");
  }
}

async function copyFile(run: CopyRun, source: string, target: string): Promise<void> {
  run.progress.update(`Copying ${source}`);
  const { mode } = await stat(source);
  const options = { mode: octal(mode), signal: run.signal };
  const entry = await run.sandbox.files.write(target, createReadStream(source), options);
  addFile(run.report, entry.size);
}

async function isGuestDirectory(sandbox: Sandbox, path: string): Promise<boolean> {
  try {
    return (await sandbox.files.stat(path, { follow: true })).type === "directory";
  } catch (error) {
    if (error instanceof AppError && error.code === "file_not_found") return false;
    throw error;
  }
}

function addFile(report: CopyReport, bytes: number): void {
  report.files += 1;
  report.bytes += bytes;
}

function octal(mode: number): string {
  return (mode & 0o7777).toString(8).padStart(4, "0");
}
