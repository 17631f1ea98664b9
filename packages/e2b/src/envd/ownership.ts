/** Who writes a file, so that it belongs to the user wherever it is. */
import { posix } from "node:path";
import { toAppError, type FileEntry } from "@forkd/contract";
import { exec, statFile } from "@forkd/runtime";
import type { Account } from "./accounts.ts";
import type { EnvdCall } from "./call.ts";

type WriteTarget = {
  /** who has to write */
  readonly user: string;
  /** Call it when the path is written: gives it, and directories that were made for it, to the user. */
  own(): Promise<void>;
};

const chownSecs = 30;

/** The user writes where it may. Elsewhere root does, and the user becomes the owner. */
export async function openForWriting(call: EnvdCall, account: Account, path: string): Promise<WriteTarget> {
  const asUser = { user: account.name, own: () => Promise.resolve() };
  if (account.uid === 0) return asUser;
  const there = await statOrNothing(call, path);
  if (there) {
    const isOwn = mayWrite(account, there, 0o2);
    return isOwn ? asUser : { user: "root", own: () => giveTo(call, account, [path]) };
  }
  const made: string[] = [path];
  for (let directory = posix.dirname(path); ; directory = posix.dirname(directory)) {
    const entry = await statOrNothing(call, directory);
    if (!entry && directory !== "/") {
      made.push(directory);
      continue;
    }
    if (!entry || mayWrite(account, entry, 0o3)) return asUser;
    return { user: "root", own: () => giveTo(call, account, made) };
  }
}

async function statOrNothing(
  { runtime, id, context }: EnvdCall,
  path: string,
): Promise<FileEntry | undefined> {
  try {
    return await statFile(runtime, { id, path, user: "root", follow: true }, context);
  } catch (error) {
    if (toAppError(error).code === "file_not_found") return undefined;
    throw error;
  }
}

/** Without further groups of the user: then root writes, and the result is the same. */
function mayWrite({ uid, gid }: Account, entry: FileEntry, needed: number): boolean {
  const bits = Number.parseInt(entry.mode, 8);
  const shift = entry.uid === uid ? 6 : entry.gid === gid ? 3 : 0;
  return ((bits >> shift) & needed) === needed;
}

/** An image without chown(1) leaves the file to root. */
async function giveTo(
  { runtime, id, context }: EnvdCall,
  { uid, gid }: Account,
  paths: readonly string[],
): Promise<void> {
  const args = ["chown", "-h", `${uid}:${gid}`, "--", ...paths];
  const request = {
    id,
    args,
    env: {},
    timeout_secs: chownSecs,
    stdin_open: false,
    stream: false,
    background: false,
  };
  try {
    await exec(runtime, request, context);
  } catch (error) {
    if (toAppError(error).code !== "guest_refused") throw error;
  }
}
