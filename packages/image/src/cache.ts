/**
 * The cache of images: `<kind>/<digest>/` with its files and `info.json`.
 *
 * An entry is built in `<kind>/.tmp-<pid>-<random>` and renamed when it is complete and durable, so a
 * directory named by a digest is always complete. In one process, builds of the same entry wait for each
 * other; between processes the first rename wins and the later build is deleted.
 */
import { randomBytes } from "node:crypto";
import { chmod, mkdir, open, readdir, rename, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fsyncPath, isErrno, Mutex, readJson, Scope } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import type { z } from "zod";
import { removeAsRoot } from "./namespace.ts";
import { cancelled, throwIfCancelled } from "./context.ts";
import { isLeased, type ImageLease } from "./lease.ts";

type CacheEntry<T> = {
  /** `<images>/<kind>` */
  parent: string;
  digest: string;
  info: z.ZodType<T>;
  /** Writes the files of the entry to `directory`; its result becomes info.json. */
  build: (directory: string) => Promise<T>;
  signal?: AbortSignal | undefined;
  /** holds the entry, so that it is not removed while the caller uses it */
  lease?: ImageLease | undefined;
  /** builds the entry although it exists, and replaces its files */
  isFresh?: boolean | undefined;
  /** Whether the files of an existing entry are whole; one that is not is built again. */
  isWhole?: ((directory: string) => Promise<boolean>) | undefined;
  /** Links the files of the entry before another build can replace them. */
  pin?: ((directory: string) => Promise<void>) | undefined;
};

const fullBelowBytes = 2 ** 20;

const queues = new Map<string, { mutex: Mutex; users: number }>();

/** The info of the entry, which is built if it is missing. A failed build leaves nothing behind. */
export async function ensureEntry<T>(entry: CacheEntry<T>): Promise<T & { directory: string }> {
  const directory = join(entry.parent, entry.digest);
  return await inTurn(directory, entry.signal, async () => {
    entry.lease?.hold(directory);
    const found = entry.isFresh ? "replace" : await readEntry(entry, directory);
    const info = typeof found === "object" ? found.info : await buildEntry(entry, { directory, found });
    await entry.pin?.(directory);
    return { ...info, directory };
  });
}

/** What the cache has: a whole entry, nothing, or something that must be replaced. */
type Found<T> = { info: T } | "missing" | "replace";

async function readEntry<T>({ info, isWhole }: CacheEntry<T>, directory: string): Promise<Found<T>> {
  let json: unknown;
  try {
    json = await readJson(join(directory, "info.json"));
  } catch (error) {
    if (error instanceof SyntaxError) return "replace";
    throw error;
  }
  if (json === undefined) return "missing";
  const parsed = info.safeParse(json);
  if (!parsed.success || (isWhole && !(await isWhole(directory)))) return "replace";
  return { info: parsed.data };
}

async function buildEntry<T>(
  entry: CacheEntry<T>,
  { directory, found }: { directory: string; found: Found<T> },
): Promise<T> {
  await mkdir(entry.parent, { recursive: true, mode: 0o700 });
  await removeAbandoned(entry.parent);
  await using scope = new Scope();
  const temporary = temporaryIn(entry.parent);
  scope.defer(() => removeAsRoot(temporary));
  await mkdir(temporary, { mode: 0o700 });
  const info = await entry.build(temporary).catch(async (error: unknown) => {
    throw await explainFullDisk(entry.parent, error);
  });
  throwIfCancelled(entry.signal);
  await writeDurable(join(temporary, "info.json"), `${JSON.stringify(info, null, 2)}\n`);
  await makePrivate(temporary);
  await fsyncTree(temporary);
  try {
    await rename(temporary, directory);
  } catch (error) {
    if (!isErrno(error, "ENOTEMPTY", "EEXIST")) throw error;
    if (found === "replace") return await replaceFiles(temporary, directory, info);
    const winner = await readEntry(entry, directory);
    if (typeof winner === "object") return winner.info;
    throw new AppError("internal", `Cannot store "${directory}": it exists without info.json`, {
      remedy: advice("Remove the directory and try again."),
    });
  }
  await fsyncPath(entry.parent);
  return info;
}

/**
 * Moves the new files over the old ones, one by one: another build may open the entry at any time, and
 * snapshots keep the old files by their links.
 */
async function replaceFiles<T>(from: string, to: string, info: T): Promise<T> {
  const names = (await readdir(from)).filter((name) => name !== "info.json");
  for (const name of [...names, "info.json"]) await rename(join(from, name), join(to, name));
  await fsyncPath(to);
  return info;
}

/** Removes an entry, or an incomplete build, unless a build uses it. Returns whether it was removed. */
export async function removeEntry(directory: string): Promise<boolean> {
  return await inTurn(directory, undefined, async () => {
    if (isLeased(directory)) return false;
    // Renamed first, so that a directory named by a digest is always complete.
    const parent = dirname(directory);
    const temporary = temporaryIn(parent);
    try {
      await rename(directory, temporary);
    } catch (error) {
      // Someone else removed it.
      if (isErrno(error, "ENOENT")) return false;
      throw error;
    }
    await fsyncPath(parent);
    await removeAsRoot(temporary);
    return true;
  });
}

/** A name whose directory is removed by a later build if this process ends before it is. */
export function temporaryIn(parent: string): string {
  return join(parent, `.tmp-${process.pid}-${randomBytes(6).toString("hex")}`);
}

/** Checks the free space, because programs report a full disk in many ways (tar only as a short write). */
async function explainFullDisk(directory: string, error: unknown): Promise<unknown> {
  if (error instanceof AppError && (error.code === "cancelled" || error.code === "disk_full")) return error;
  const { bavail, bsize } = await statfs(directory);
  if (bavail * bsize > fullBelowBytes) return error;
  const message = `Cannot build an image in "${directory}": no space is left`;
  return new AppError("disk_full", message, { remedy: { action: "free_disk" }, cause: error });
}

/** Runs `work` when no other work on `key` runs. A caller that is cancelled while it waits fails at once. */
async function inTurn<T>(key: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  throwIfCancelled(signal);
  const queue = queues.get(key) ?? { mutex: new Mutex(), users: 0 };
  queues.set(key, queue);
  queue.users++;
  let isOurTurn = false;
  const done = queue.mutex.run(async () => {
    throwIfCancelled(signal);
    isOurTurn = true;
    return await work();
  });
  const release = (): void => {
    if (--queue.users === 0) queues.delete(key);
  };
  done.then(release, release);
  return await new Promise<T>((resolve, reject) => {
    const stop = (): void => {
      if (!isOurTurn) reject(cancelled(signal?.reason));
    };
    signal?.addEventListener("abort", stop, { once: true });
    done.then(resolve, reject).finally(() => signal?.removeEventListener("abort", stop));
  });
}

/** Removes incomplete builds of processes that have exited. */
export async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    if (isAbandoned(name)) await removeAsRoot(join(parent, name));
  }
}

/** Whether a name is that of an incomplete build of a process that has exited. */
export function isAbandoned(name: string): boolean {
  const pid = /^\.tmp-(\d+)-/.exec(name)?.[1];
  return pid !== undefined && !isAlive(Number(pid));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return !isErrno(error, "ESRCH");
  }
}

async function writeDurable(path: string, text: string): Promise<void> {
  const handle = await open(path, "wx", 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Snapshots link these files, so their own mode must not let others read them. */
async function makePrivate(directory: string): Promise<void> {
  for (const entry of await readdir(directory, { withFileTypes: true }))
    if (entry.isFile()) await chmod(join(directory, entry.name), 0o600);
}

async function fsyncTree(directory: string): Promise<void> {
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) await fsyncTree(path);
    else if (entry.isFile()) await fsyncPath(path);
  }
  await fsyncPath(directory);
}

/** Throws `disk_full` unless `directory` has `bytes` of free space. */
export async function requireSpace(directory: string, bytes: number): Promise<void> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const { bavail, bsize } = await statfs(directory);
  const free = bavail * bsize;
  if (free >= bytes) return;
  const mib = (n: number): number => Math.ceil(n / 2 ** 20);
  throw new AppError(
    "disk_full",
    `Cannot build an image in "${directory}": not enough space; ${mib(bytes)} MiB are needed and ${mib(free)} MiB are free`,
    { details: { needed_bytes: bytes, free_bytes: free }, remedy: { action: "free_disk" } },
  );
}
