/** Directories and entries of a sandbox. */
import { AppError, toAppError, type FileEntry } from "@forkd/contract";
import { listFiles, makeDirectory, moveFile, removeFile, statFile } from "@forkd/runtime";
import type { Account } from "./accounts.ts";
import { accountOf, asUserOrRoot, pathOf, type EnvdCall } from "./call.ts";
import { entryInfo, type EntryInfo } from "./entry.ts";
import { openForWriting } from "./ownership.ts";

const maxDepth = 64;

export async function statEntry(call: EnvdCall, path: string): Promise<{ entry: EntryInfo }> {
  const account = await accountOf(call);
  return { entry: entryInfo(await stat(call, account, pathOf(call, account, path))) };
}

export function stat(
  { runtime, id, context }: EnvdCall,
  account: Account,
  path: string,
  follow = false,
): Promise<FileEntry> {
  return asUserOrRoot(account, (user) => statFile(runtime, { id, path, user, follow }, context));
}

/** Throws unless the path leads to a directory. */
export async function requireDirectory(call: EnvdCall, account: Account, path: string): Promise<void> {
  const { type } = await stat(call, account, path, true);
  if (type !== "directory") throw new AppError("invalid_request", `path is not a directory: ${path}`);
}

/** Each directory before what it contains. Links are not followed. */
export async function listDirectory(
  call: EnvdCall,
  asked: { path: string; depth: number },
): Promise<{ entries: EntryInfo[] }> {
  if (asked.depth < 1) throw new AppError("invalid_request", "depth should be at least one");
  const account = await accountOf(call);
  const path = pathOf(call, account, asked.path);
  await requireDirectory(call, account, path);
  const { runtime, id, context } = call;
  const depth = Math.min(asked.depth, maxDepth);
  const found = await asUserOrRoot(account, (user) => listFiles(runtime, { id, path, user, depth }, context));
  return { entries: found.map(entryInfo) };
}

export async function makeDir(call: EnvdCall, path: string): Promise<{ entry: EntryInfo }> {
  const account = await accountOf(call);
  const resolved = pathOf(call, account, path);
  const there = await stat(call, account, resolved, true).catch((error: unknown) => {
    if (toAppError(error).code === "file_not_found") return undefined;
    throw error;
  });
  if (there?.type === "directory")
    throw new AppError("already_exists", `directory already exists: ${resolved}`);
  if (there)
    throw new AppError("invalid_request", `path already exists but it is not a directory: ${resolved}`);
  const { runtime, id, context } = call;
  const target = await openForWriting(call, account, resolved);
  await makeDirectory(runtime, { id, path: resolved, user: target.user, parents: true }, context);
  await target.own();
  return { entry: entryInfo(await stat(call, account, resolved)) };
}

export async function move(
  call: EnvdCall,
  { source, destination }: { source: string; destination: string },
): Promise<{ entry: EntryInfo }> {
  const account = await accountOf(call);
  const from = pathOf(call, account, source);
  const to = pathOf(call, account, destination);
  const { runtime, id, context } = call;
  await asUserOrRoot(account, (user) => moveFile(runtime, { id, from, to, user }, context));
  return { entry: entryInfo(await stat(call, account, to)) };
}

/** A missing path is not an error. */
export async function remove(call: EnvdCall, path: string): Promise<void> {
  const account = await accountOf(call);
  const resolved = pathOf(call, account, path);
  const { runtime, id, context } = call;
  try {
    await asUserOrRoot(account, (user) =>
      removeFile(runtime, { id, path: resolved, user, recursive: true }, context),
    );
  } catch (error) {
    if (toAppError(error).code !== "file_not_found") throw error;
  }
}
