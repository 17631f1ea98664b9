/**
 * Files of transfers that can continue, `<root>/.pull-<key>/`. A transfer that is not repeated would keep
 * its files, so they are removed some time after they were last written.
 */
import { mkdir, readdir, rename, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, Mutex, removeTree } from "@forkd/base";
import { hiddenName, trashPrefix } from "./tombstone.ts";

const pullPrefix = ".pull-";
/** Without being asked: a user may repeat the pull after a weekend. */
const keptMs = 7 * 86_400_000;
/** On request. A transfer in progress writes much more often than this. */
const idleMs = 86_400_000;
const blockBytes = 512;

type UnfinishedPull = { readonly name: string; readonly bytes: number };

export class PullDirectories {
  readonly #root: string;
  /** A directory is neither removed while it is taken into use, nor the other way round. */
  readonly #turns = new Mutex();

  constructor(root: string) {
    this.#root = root;
  }

  /** The directory of a transfer, which may have the files of an earlier attempt. */
  use(key: string): Promise<string> {
    return this.#turns.run(async () => {
      const dir = join(this.#root, `${pullPrefix}${key}`);
      await mkdir(dir, { recursive: true, mode: 0o700 });
      const now = new Date();
      await utimes(dir, now, now);
      return dir;
    });
  }

  /** Removes those that were not written to for a day, unless it is a dry run. */
  removeIdle({ dryRun }: { dryRun: boolean }): Promise<UnfinishedPull[]> {
    return this.#turns.run(async () => {
      const idle: UnfinishedPull[] = [];
      for (const name of await idleSince(this.#root, Date.now() - idleMs)) {
        idle.push({ name, bytes: await diskBytes(join(this.#root, name)) });
        if (!dryRun) await remove(this.#root, name);
      }
      return idle;
    });
  }
}

/** Removes those that were not continued for a week. No transfer is in progress. */
export async function removeOldPulls(root: string): Promise<void> {
  for (const name of await idleSince(root, Date.now() - keptMs)) await remove(root, name);
}

async function idleSince(root: string, timeMs: number): Promise<string[]> {
  const idle: string[] = [];
  for (const name of await readdir(root)) {
    if (name.startsWith(pullPrefix) && (await writtenAtMs(join(root, name))) < timeMs) idle.push(name);
  }
  return idle;
}

/** Writing to a file does not change the time of its directory. */
async function writtenAtMs(dir: string): Promise<number> {
  const times = [(await stat(dir)).mtimeMs];
  for (const file of await filesIn(dir)) times.push(file.mtimeMs);
  return Math.max(...times);
}

async function diskBytes(dir: string): Promise<number> {
  return (await filesIn(dir)).reduce((sum, { blocks }) => sum + blocks * blockBytes, 0);
}

async function filesIn(dir: string): Promise<{ mtimeMs: number; blocks: number }[]> {
  try {
    return await Promise.all((await readdir(dir)).map((name) => stat(join(dir, name))));
  } catch (error) {
    // Not a directory, or its transfer has just ended.
    if (isErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

/** In one step, so that a transfer that begins now does not find half of its files. */
async function remove(root: string, name: string): Promise<void> {
  const trash = join(root, hiddenName(trashPrefix));
  try {
    await rename(join(root, name), trash);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return;
    throw error;
  }
  await removeTree(trash);
}
