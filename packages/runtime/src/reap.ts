/**
 * Ends what a daemon that died left behind. A VMM of ours names its own socket, `<runtime dir>/<id>/agent.sock`, in its
 * command line, so the process of a sandbox directory is found from the first moment of its life, and no stranger is: not by
 * a reused pid, not by a name that looks alike. Only directories below our own data directory are looked at.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { sandboxIdPattern } from "@forkd/contract";
import { isErrno, removeTree, type Logger } from "@forkd/base";
import { escapeComma } from "@forkd/machine";
import type { RuntimeConfig } from "./config.ts";
import { sandboxPaths } from "./identity.ts";

async function sandboxDirs(config: RuntimeConfig): Promise<string[]> {
  try {
    return (await readdir(join(config.dataDir, "sandboxes"))).filter((name) => sandboxIdPattern.test(name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

/** pid by sandbox id, for the given ids. */
async function findProcesses(config: RuntimeConfig, ids: ReadonlySet<string>): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const command = await readFile(`/proc/${name}/cmdline`, "utf8").catch((error: unknown) => {
      if (isErrno(error, "ENOENT", "ESRCH", "EACCES")) return "";
      throw error;
    });
    const id = /\/(sb-[0-9a-f]{24})\/agent\.sock,/.exec(command)?.[1];
    if (id === undefined || !ids.has(id)) continue;
    if (command.includes(`path=${escapeComma(join(config.runtimeDir, id))}/agent.sock,`))
      found.set(id, Number(name));
  }
  return found;
}

export type Stray = { kind: "process" | "directory"; name: string; detail: string };

/** Strays among the sandbox directories that `isOurs` does not claim. */
export async function findStrays(
  config: RuntimeConfig,
  isOurs: (id: string) => boolean = () => false,
): Promise<Stray[]> {
  const ids = new Set((await sandboxDirs(config)).filter((id) => !isOurs(id)));
  if (ids.size === 0) return [];
  const processes = await findProcesses(config, ids);
  return [...ids].flatMap((id): Stray[] => {
    const pid = processes.get(id);
    const directory: Stray = { kind: "directory", name: id, detail: sandboxPaths(config, id).dir };
    return pid === undefined ? [directory] : [{ kind: "process", name: id, detail: String(pid) }, directory];
  });
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
      // The directory by which the rest is found goes last.
      const paths = sandboxPaths(config, stray.name);
      await removeTree(paths.socketDir);
      await removeTree(paths.dir);
    }
  }
}

export async function reapStrays(config: RuntimeConfig, log: Logger): Promise<void> {
  const strays = await findStrays(config);
  await removeStrays(config, strays);
  if (strays.length > 0) log.warn({ event: "runtime.reap", strays });
}
