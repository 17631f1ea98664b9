/**
 * Ends what a daemon that died left behind. A VMM of ours names its own console, `<data dir>/sandboxes/<id>/<number>/console.log`,
 * in its command line, so the process of a sandbox directory is found from the first moment of its life, and no stranger is: not
 * by a reused pid, not by a name that looks alike. Only directories below our own data directory are looked at.
 *
 * Of a sandbox that has a record its home stays, and the machine that the record names if it lives.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { sandboxIdPattern } from "@forkd/contract";
import { isErrno, removeTree, type Logger } from "@forkd/base";
import { commandLine, endProcess, escapeComma } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import { sandboxHome, sandboxPaths } from "../sandbox/paths.ts";

export async function sandboxIds(config: RuntimeConfig): Promise<string[]> {
  try {
    return (await readdir(join(config.dataDir, "sandboxes"))).filter((name) => sandboxIdPattern.test(name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

export type VmmOf = { id: string; number: number; pid: number };

/** Whether the command line is that of a VMM of this data directory, and of which machine. */
export function vmmOf(config: RuntimeConfig, argv: readonly string[]): Omit<VmmOf, "pid"> | undefined {
  for (const argument of argv) {
    const [, id, number] = /\/(sb-[0-9a-f]{24})\/(\d+)\/console\.log,/.exec(argument) ?? [];
    if (id === undefined || number === undefined) continue;
    const { consolePath } = sandboxPaths(config, id, Number(number));
    if (argument.includes(`path=${escapeComma(consolePath)},`)) return { id, number: Number(number) };
  }
  return undefined;
}

/** Every VMM of this data directory. */
async function findVmms(config: RuntimeConfig): Promise<VmmOf[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number);
  return pids.flatMap((pid) => {
    const machine = vmmOf(config, commandLine(pid));
    return machine ? [{ ...machine, pid }] : [];
  });
}

export type Stray = { kind: "process" | "directory" | "machine"; name: string; detail: string };

/** What is known of a sandbox directory: whether it has a record, and the machine that it has. */
export type Claim = { hasRecord: boolean; machine?: { number: number; pid: number } | undefined };

/** Strays among the sandbox directories; `claimOf` gives undefined for those that are not to be looked at. */
export async function findStrays(
  config: RuntimeConfig,
  claimOf: (id: string) => Claim | undefined = () => ({ hasRecord: false }),
): Promise<Stray[]> {
  const claims = new Map<string, Claim>();
  for (const id of await sandboxIds(config)) {
    const claim = claimOf(id);
    if (claim) claims.set(id, claim);
  }
  if (claims.size === 0) return [];
  const vmms = await findVmms(config);
  const strays: Stray[] = [];
  for (const [id, { hasRecord, machine }] of claims) {
    const { dir } = sandboxHome(config, id);
    for (const { pid } of vmms.filter((each) => each.id === id && each.pid !== machine?.pid))
      strays.push({ kind: "process", name: id, detail: String(pid) });
    if (!hasRecord) strays.push({ kind: "directory", name: id, detail: dir });
    else
      for (const number of await machineDirs(dir))
        if (Number(number) !== machine?.number)
          strays.push({ kind: "machine", name: id, detail: join(dir, number) });
  }
  return strays;
}

async function machineDirs(dir: string): Promise<string[]> {
  return (await readdir(dir)).filter((name) => /^\d+$/.test(name));
}

export async function removeStrays(config: RuntimeConfig, strays: readonly Stray[]): Promise<void> {
  for (const { kind, name, detail } of strays) {
    const home = sandboxHome(config, name);
    if (kind === "process") endProcess(Number(detail));
    else {
      // The directory by which the rest is found goes last.
      await removeTree(
        kind === "machine" ? join(home.socketDir, detail.slice(home.dir.length)) : home.socketDir,
      );
      await removeTree(detail);
    }
  }
}

export async function reapStrays(
  config: RuntimeConfig,
  log: Logger,
  claimOf?: (id: string) => Claim | undefined,
): Promise<void> {
  const strays = await findStrays(config, claimOf);
  await removeStrays(config, strays);
  if (strays.length > 0) log.warn({ event: "runtime.reap", strays });
}
