/**
 * One daemon per data directory: the file daemon.lock names its holder.
 *
 * The file appears whole, by link(), which fails if the name is taken. A lock whose holder is dead is moved aside under
 * a name of its own first; if what was moved is not what was judged dead, another daemon has been faster and it is put
 * back.
 */
import { randomBytes } from "node:crypto";
import { link, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { z } from "zod";
import { identifyProcess, isAlive } from "./process-identity.ts";

const holderSchema = z.object({ pid: z.number(), start_time: z.number(), boot_id: z.string() });

const attempts = 5;

/** Throws `data_dir_in_use` if a live daemon holds it. Disposing gives it free. */
export async function lockDataDir(dataDir: string): Promise<AsyncDisposable> {
  const file = join(dataDir, "daemon.lock");
  const mine = `${file}.${randomBytes(6).toString("hex")}`;
  await writeFile(mine, JSON.stringify(await identifyProcess(process.pid)), { mode: 0o600, flag: "wx" });
  try {
    for (let attempt = 0; attempt < attempts; attempt++) {
      if (await tryLink(mine, file)) return { [Symbol.asyncDispose]: () => rm(file, { force: true }) };
      await removeStale(file, dataDir);
    }
    throw new AppError("data_dir_in_use", `Cannot lock ${dataDir}: other daemons keep taking the lock`);
  } finally {
    await rm(mine, { force: true });
  }
}

async function tryLink(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if (isErrno(error, "EEXIST")) return false;
    throw error;
  }
}

async function removeStale(file: string, dataDir: string): Promise<void> {
  const found = await readIfPresent(file);
  if (found === undefined) return;
  const holder = holderSchema.safeParse(parseJson(found));
  if (holder.success && (await isAlive(holder.data))) {
    throw new AppError(
      "data_dir_in_use",
      `Cannot use ${dataDir}: the daemon with pid ${holder.data.pid} uses it`,
      {
        details: { pid: holder.data.pid, data_dir: dataDir },
      },
    );
  }
  const aside = `${file}.${randomBytes(6).toString("hex")}`;
  try {
    await rename(file, aside);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return;
    throw error;
  }
  if ((await readIfPresent(aside)) !== found) await tryLink(aside, file);
  await rm(aside, { force: true });
}

async function readIfPresent(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
