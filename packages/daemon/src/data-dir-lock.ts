/**
 * One daemon per data directory: a socket in the abstract namespace, named by the directory's device and inode. The kernel lets
 * one process have it, whatever path it came by, and takes it back when that process ends, however it ends.
 */
import { stat } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { isErrno, readJson } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { z } from "zod";

const recordSchema = z.object({ pid: z.number() });

/** Throws `data_dir_in_use` if a live daemon holds it. Disposing gives it free. */
export async function lockDataDir(dataDir: string): Promise<AsyncDisposable> {
  const { dev, ino } = await stat(dataDir, { bigint: true });
  const server = createServer((socket) => socket.destroy());
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen({ path: `\0forkd-data-${dev}-${ino}` }, resolve);
    });
  } catch (error) {
    if (isErrno(error, "EADDRINUSE")) throw await inUse(dataDir);
    throw error;
  }
  server.unref();
  return {
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
      }),
  };
}

/** The holder is named by what it wrote about itself, if it has come that far. */
async function inUse(dataDir: string): Promise<AppError> {
  const record = recordSchema.safeParse(await readJson(join(dataDir, "daemon.json")).catch(() => undefined));
  const who = record.success ? `the daemon with pid ${record.data.pid}` : "another daemon";
  return new AppError("data_dir_in_use", `Cannot use ${dataDir}: ${who} uses it`, {
    details: { data_dir: dataDir, ...(record.success && { pid: record.data.pid }) },
  });
}
