/**
 * One daemon per data directory, by two sockets that the kernel closes when their process ends, however it
 * ends:
 *
 *   one in the abstract namespace, named by the device and inode of the directory, whatever path a daemon uses for it
 *   one in the directory, visible from every network namespace: a container has its own, with its own abstract names
 */
import { randomBytes } from "node:crypto";
import { open, rename, rm, stat } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { isErrno, probeSocket, readJson, Scope } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { z } from "zod";

const recordSchema = z.object({ pid: z.number() });
const lockName = "daemon.lock";

/** Throws `data_dir_in_use` if a live daemon holds it. Disposing releases it. */
export async function lockDataDir(dataDir: string): Promise<AsyncDisposable> {
  await using scope = new Scope();
  const { dev, ino } = await stat(dataDir, { bigint: true });
  const names = await listenAt(`\0forkd-data-${dev}-${ino}`);
  if (!names) throw await inUse(dataDir);
  scope.defer(() => closed(names));
  // The path of a socket must be short. Through its descriptor a directory has a short path, also when the
  // socket is removed.
  const dir = await open(dataDir, "r");
  scope.defer(() => dir.close());
  const file = await listenInDirectory(`/proc/self/fd/${dir.fd}/${lockName}`);
  if (file === "taken") throw await inUse(dataDir);
  if (file) scope.defer(() => closed(file));
  const kept = scope.keep();
  return { [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose]() };
}

/** undefined where the file system has no sockets or no space: the abstract socket must do there. */
async function listenInDirectory(path: string): Promise<Server | "taken" | undefined> {
  try {
    const first = await listenAt(path);
    if (first) return first;
    if ((await probeSocket(path)) === "answers") return "taken";
    // Its daemon was killed. Move the file before removing it: another daemon may have replaced it a moment
    // ago.
    const old = `${path}.${randomBytes(6).toString("hex")}`;
    await rename(path, old);
    if ((await probeSocket(old)) === "answers") {
      await rename(old, path);
      return "taken";
    }
    await rm(old);
    return (await listenAt(path)) ?? "taken";
  } catch (error) {
    if (isErrno(error, "EOPNOTSUPP", "ENOTSUP", "EPERM", "ENOSPC", "EDQUOT")) return undefined;
    throw error;
  }
}

/** undefined if the path is taken. */
async function listenAt(path: string): Promise<Server | undefined> {
  const server = createServer((socket) => socket.destroy());
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path }, resolve);
    });
  } catch (error) {
    if (isErrno(error, "EADDRINUSE")) return undefined;
    throw error;
  }
  server.unref();
  return server;
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}

/** Names the holder by its daemon.json, if it has written one. */
async function inUse(dataDir: string): Promise<AppError> {
  const record = recordSchema.safeParse(await readJson(join(dataDir, "daemon.json")).catch(() => undefined));
  const who = record.success ? `the daemon with pid ${record.data.pid}` : "another daemon";
  return new AppError("data_dir_in_use", `Cannot use ${dataDir}: ${who} uses it`, {
    details: { data_dir: dataDir, ...(record.success && { pid: record.data.pid }) },
  });
}
