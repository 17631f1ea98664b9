/**
 * Version 2: groups below a group can have controllers only if that group has no processes. There are two
 * ways to get such a group:
 *
 *   given    The service manager created and delegated it only for machines. This process stays in its group,
 *            so the manager can restart it while machines run. The process that keeps the given group alive
 *            for the manager moves to a leaf, `keeper`.
 *   our own  This process moves to a leaf, `daemon`, beside which the groups of the sandboxes are created. If
 *            other processes are in our group too, the move is undone.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { isErrno } from "@forkd/base";
import type { Controller, Position } from "./hierarchies.ts";

const leafName = "daemon";
const keeperName = "keeper";

export type Delegation = {
  /** the group below which groups can be created */
  dir: string;
  enabled: readonly string[];
  /** why the others are not enabled */
  reason: string;
};

function wordsOf(path: string): string[] {
  return readFileSync(path, "utf8")
    .split(/\s+/)
    .filter((word) => word !== "");
}

/** Enables the controllers one by one, so that the refusal of one does not affect the others. */
export function enable(dir: string, wanted: readonly string[]): { enabled: string[]; reason: string } {
  let reason = "";
  const enabled: string[] = [];
  for (const controller of wanted) {
    try {
      writeFileSync(join(dir, "cgroup.subtree_control"), `+${controller}`);
      enabled.push(controller);
    } catch (error) {
      if (!isErrno(error, "EBUSY", "EACCES", "EPERM", "EROFS", "ENOENT", "EINVAL", "ENOTSUP")) throw error;
      reason = explain(dir, error);
      // Stop here: the kernel would enable some of the others and make the group threaded. Groups below a
      // threaded group cannot contain processes.
      if (isErrno(error, "EBUSY", "ENOTSUP")) break;
    }
  }
  return { enabled, reason };
}

function explain(dir: string, error: unknown): string {
  // Node's name for EOPNOTSUPP.
  if (isErrno(error, "ENOTSUP"))
    return `the group ${dir} is one for threads (its cgroup.type); run the daemon in another`;
  if (isErrno(error, "EBUSY"))
    return `the group ${dir} holds processes of others; run the daemon in one of its own (systemd: Delegate=yes)`;
  return `the group ${dir} is not ours to change; run the daemon as root or with systemd's Delegate=yes`;
}

/** Uses the given group for machines, a path relative to the group of this process. */
export function useGiven(position: Position, given: string, wanted: readonly Controller[]): Delegation {
  const dir = resolve(position.dir, given);
  if (!existsSync(join(dir, "cgroup.type"))) {
    const reason = `there is no group ${dir} (setting machines_cgroup); its unit is to be started before the daemon`;
    return { dir, enabled: [], reason };
  }
  try {
    for (const pid of wordsOf(join(dir, "cgroup.procs"))) {
      mkdirSync(join(dir, keeperName), { recursive: true });
      writeFileSync(join(dir, keeperName, "cgroup.procs"), pid);
    }
  } catch (error) {
    if (!isErrno(error, "EACCES", "EPERM", "EROFS", "ENOTSUP")) throw error;
    return { dir, enabled: [], reason: explain(dir, error) };
  }
  return { dir, ...enable(dir, wanted) };
}

export function takeDelegation(position: Position, pid: number, wanted: readonly Controller[]): Delegation {
  // Only the root group has no cgroup.type, and it may have both processes and groups.
  if (!existsSync(join(position.dir, "cgroup.type")))
    return { dir: position.dir, ...enable(position.dir, wanted) };
  // An earlier run or the service manager has moved this process to the leaf.
  if (basename(position.dir) === leafName) {
    const dir = dirname(position.dir);
    return { dir, ...enable(dir, wanted) };
  }
  const { dir } = position;
  const leaf = join(dir, leafName);
  const has = wordsOf(join(dir, "cgroup.controllers"));
  const missing = wanted.filter((each) => !has.includes(each));
  const undo: (() => void)[] = [];
  try {
    mkdirSync(leaf, { recursive: true });
    undo.push(() => rmdirSync(leaf));
    writeFileSync(join(leaf, "cgroup.procs"), String(pid));
    undo.push(() => writeFileSync(join(dir, "cgroup.procs"), String(pid)));
  } catch (error) {
    if (!isErrno(error, "EACCES", "EPERM", "EROFS", "EBUSY")) throw error;
    for (const step of undo.reverse()) attempt(step);
    return { dir, enabled: [], reason: explain(dir, error) };
  }
  const { enabled, reason } = enable(
    dir,
    wanted.filter((each) => has.includes(each)),
  );
  if (enabled.length === 0) for (const step of undo.reverse()) attempt(step);
  const absent = `the controllers ${missing.join(", ")} are not delegated to ${dir}`;
  return { dir, enabled, reason: reason || absent };
}

/** If a step cannot be undone, only an empty group remains. */
function attempt(step: () => void): void {
  try {
    step();
  } catch {
    // The caller reports why the steps were undone, which matters more.
  }
}
