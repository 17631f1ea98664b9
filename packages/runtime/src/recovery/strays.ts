/**
 * Strays: what a daemon that crashed left behind and no sandbox owns. VMM processes and directories of this
 * data directory, and control groups below our own group. Nothing else is touched.
 *
 * A sandbox that has a record keeps its home, and the machine that the record names if it is running.
 */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { removeTree, type Logger } from "@forkd/base";
import { endProcess, type Cgroups } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import { sandboxHome, sandboxIds } from "../sandbox/paths.ts";
import { commandLines, sandboxOfGroup, vmmOf, type VmmOf } from "./vmm-command-line.ts";

/** All VMMs of this data directory. */
async function findVmms(config: RuntimeConfig): Promise<(VmmOf & { pid: number })[]> {
  return (await commandLines()).flatMap(({ pid, argv }) => {
    const machine = vmmOf(config, argv);
    return machine ? [{ ...machine, pid }] : [];
  });
}

export type Stray = { kind: "process" | "directory" | "machine"; name: string; detail: string };

/** What belongs to a sandbox directory: whether it has a record, and its running machine. */
export type Claim = { hasRecord: boolean; machine?: { number: number; pid: number } | undefined };

/** Strays among the sandbox directories; a directory for which `claimOf` returns undefined is left out. */
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
      // Strays are found by this directory, so it is removed last.
      await removeTree(
        kind === "machine" ? join(home.socketDir, detail.slice(home.dir.length)) : home.socketDir,
      );
      await removeTree(detail);
    }
  }
}

/** Finds and removes strays when a daemon starts. */
export async function cleanUpStrays(
  config: RuntimeConfig,
  log: Logger,
  claimOf?: (id: string) => Claim | undefined,
): Promise<void> {
  const strays = await findStrays(config, claimOf);
  await removeStrays(config, strays);
  if (strays.length > 0) log.warn({ event: "runtime.reap", strays });
}

/**
 * Names of control groups that are empty or belong to no sandbox of ours. (A machine enters its group in the
 * step that makes the group, so no group in use is empty.)
 */
export function findStrayGroups(cgroups: Cgroups, isOurs: (id: string) => boolean): string[] {
  return cgroups.list().filter((name) => {
    const id = sandboxOfGroup(name);
    return id === undefined || !isOurs(id) || (cgroups.adopt(name)?.pids.length ?? 0) === 0;
  });
}

/** Ends the processes in the groups too: the groups are below our own, so only we put processes there. */
export async function removeStrayGroups(cgroups: Cgroups, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const group = cgroups.adopt(name);
    for (const pid of group?.pids ?? []) endProcess(pid);
    await group?.[Symbol.asyncDispose]();
  }
}

/**
 * Finds and removes stray groups when a daemon has adopted its sandboxes. A group that cannot be removed does
 * no harm.
 */
export async function cleanUpStrayGroups(
  cgroups: Cgroups,
  log: Logger,
  isOurs: (id: string) => boolean,
): Promise<void> {
  const names = findStrayGroups(cgroups, isOurs);
  if (names.length === 0) return;
  try {
    await removeStrayGroups(cgroups, names);
    log.warn({ event: "runtime.reap", groups: names });
  } catch (error) {
    log.error({ event: "runtime.reap", groups: names, error });
  }
}
