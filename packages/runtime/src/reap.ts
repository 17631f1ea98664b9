/**
 * Ends what a daemon that died left behind: VMM processes named by records in the sandbox directories (pid and start time,
 * so that a reused pid is never touched), then the directories. Strangers are not looked at.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { sandboxIdPattern } from "@forkd/contract";
import { isErrno, readJson, removeTree, type Logger } from "@forkd/base";
import { isAlive } from "@forkd/machine";
import type { RuntimeConfig } from "./config.ts";
import { sandboxPaths } from "./identity.ts";

const recordSchema = z.object({ id: z.string(), pid: z.int().min(2), startTime: z.number() });

async function idsIn(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir)).filter((name) => sandboxIdPattern.test(name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

export type Stray = { kind: "process" | "directory"; name: string; detail: string };

/** Strays among the sandboxes that `isOurs` does not claim. */
export async function findStrays(
  config: RuntimeConfig,
  isOurs: (id: string) => boolean = () => false,
): Promise<Stray[]> {
  const found: Stray[] = [];
  const ids = new Set([
    ...(await idsIn(join(config.dataDir, "sandboxes"))),
    ...(await idsIn(config.runtimeDir)),
  ]);
  for (const id of ids) {
    if (isOurs(id)) continue;
    const paths = sandboxPaths(config, id);
    const record = recordSchema.safeParse(await readJson(paths.record).catch(() => undefined));
    if (record.success && isAlive(record.data))
      found.push({ kind: "process", name: id, detail: String(record.data.pid) });
    found.push({ kind: "directory", name: id, detail: paths.dir });
  }
  return found;
}

export async function removeStrays(config: RuntimeConfig, strays: readonly Stray[]): Promise<void> {
  for (const stray of strays) {
    if (stray.kind === "process") {
      try {
        process.kill(Number(stray.detail), "SIGKILL");
      } catch (error) {
        if (!isErrno(error, "ESRCH")) throw error;
      }
    } else {
      const paths = sandboxPaths(config, stray.name);
      await removeTree(paths.dir);
      await removeTree(paths.socketDir);
    }
  }
}

export async function reapStrays(config: RuntimeConfig, log: Logger): Promise<void> {
  const strays = await findStrays(config);
  await removeStrays(config, strays);
  if (strays.length > 0) log.warn({ event: "runtime.reap", strays });
}
