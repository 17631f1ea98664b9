/**
 * Ends what a daemon that died left behind. A VMM of ours names its own socket, `<runtime dir>/<id>/<number>/agent.sock`, in
 * its command line, so the process of a sandbox directory is found from the first moment of its life, and no stranger is: not
 * by a reused pid, not by a name that looks alike. Only directories below our own data directory are looked at.
 *
 * The home of a sandbox that can come back (it has a record) stays; of its machine nothing does.
 */
import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { sandboxIdPattern } from "@forkd/contract";
import { isErrno, removeTree, type Logger } from "@forkd/base";
import { escapeComma } from "@forkd/machine";
import type { RuntimeConfig } from "./config.ts";
import { sandboxHome } from "./identity.ts";

export async function sandboxIds(config: RuntimeConfig): Promise<string[]> {
  try {
    return (await readdir(join(config.dataDir, "sandboxes"))).filter((name) => sandboxIdPattern.test(name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

/** pids by sandbox id, for the given ids. */
async function findProcesses(
  config: RuntimeConfig,
  ids: ReadonlySet<string>,
): Promise<Map<string, number[]>> {
  const found = new Map<string, number[]>();
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const command = await readFile(`/proc/${name}/cmdline`, "utf8").catch((error: unknown) => {
      if (isErrno(error, "ENOENT", "ESRCH", "EACCES")) return "";
      throw error;
    });
    const [, id, number] = /\/(sb-[0-9a-f]{24})\/(\d+)\/agent\.sock,/.exec(command) ?? [];
    if (id === undefined || number === undefined || !ids.has(id)) continue;
    if (command.includes(`path=${escapeComma(join(config.runtimeDir, id, number))}/agent.sock,`))
      found.set(id, [...(found.get(id) ?? []), Number(name)]);
  }
  return found;
}

export type Stray = { kind: "process" | "directory" | "machine"; name: string; detail: string };

/** Strays among the sandbox directories that `isOurs` does not claim. */
export async function findStrays(
  config: RuntimeConfig,
  isOurs: (id: string) => boolean = () => false,
): Promise<Stray[]> {
  const ids = new Set((await sandboxIds(config)).filter((id) => !isOurs(id)));
  if (ids.size === 0) return [];
  const processes = await findProcesses(config, ids);
  const strays: Stray[] = [];
  for (const id of ids) {
    const { dir } = sandboxHome(config, id);
    for (const pid of processes.get(id) ?? [])
      strays.push({ kind: "process", name: id, detail: String(pid) });
    if (!(await hasRecord(config, id))) strays.push({ kind: "directory", name: id, detail: dir });
    else
      for (const number of await machineDirs(dir))
        strays.push({ kind: "machine", name: id, detail: join(dir, number) });
  }
  return strays;
}

async function hasRecord(config: RuntimeConfig, id: string): Promise<boolean> {
  try {
    await access(sandboxHome(config, id).recordPath);
    return true;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
}

async function machineDirs(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => /^\d+$/.test(name));
}

export async function removeStrays(config: RuntimeConfig, strays: readonly Stray[]): Promise<void> {
  for (const stray of strays) {
    const home = sandboxHome(config, stray.name);
    if (stray.kind === "process") {
      try {
        process.kill(Number(stray.detail), "SIGKILL");
      } catch (error) {
        if (!isErrno(error, "ESRCH")) throw error;
      }
    } else {
      // The directory by which the rest is found goes last.
      await removeTree(home.socketDir);
      await removeTree(stray.detail);
    }
  }
}

export async function reapStrays(config: RuntimeConfig, log: Logger): Promise<void> {
  const strays = await findStrays(config);
  await removeStrays(config, strays);
  if (strays.length > 0) log.warn({ event: "runtime.reap", strays });
}
