/**
 * Version 2: groups below a group can have controllers only if that has no process. Two ways to such a group:
 *
 *   given    one that the service manager made for machines alone, and delegated. This process stays where it is, so it can be started
 *            there again while machines live. The process that keeps the group there for the manager moves into a leaf, `keeper`.
 *   our own  this process moves into a leaf, `daemon`, beside which the groups of the sandboxes are made. Where others are in our
 *            group too it is not ours to divide, and all stays as it was.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { isErrno } from "@forkd/base";
import type { Controller, Position } from "./hierarchies.ts";

export const leafName = "daemon";
export const keeperName = "keeper";

export type Delegation = {
  /** the group below which groups can be made */
  dir: string;
  enabled: readonly string[];
  /** why the others are not */
  reason: string;
};

function wordsOf(path: string): string[] {
  return readFileSync(path, "utf8")
    .split(/\s+/)
    .filter((word) => word !== "");
}

/** Enables what it can, one by one, so that one that is refused does not cost the others. */
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
      // The kernel would enable some of the others, and make the group one of threads, below which there are no groups for processes.
      if (isErrno(error, "EBUSY", "ENOTSUP")) break;
    }
  }
  return { enabled, reason };
}

function explain(dir: string, error: unknown): string {
  // As Node calls EOPNOTSUPP.
  if (isErrno(error, "ENOTSUP"))
    return `the group ${dir} is one for threads (its cgroup.type); run the daemon in another`;
  if (isErrno(error, "EBUSY"))
    return `the group ${dir} holds processes of others; run the daemon in one of its own (systemd: Delegate=yes)`;
  return `the group ${dir} is not ours to change; run the daemon as root or with systemd's Delegate=yes`;
}

/** The group that was given for machines: a path, seen from the group of this process. */
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
  // The root of all groups, and only it, has no type, and may have both processes and groups.
  if (!existsSync(join(position.dir, "cgroup.type")))
    return { dir: position.dir, ...enable(position.dir, wanted) };
  // Put there by an earlier step of ours or by the service manager.
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

/** What is left of a step that cannot be undone is an empty group. */
function attempt(step: () => void): void {
  try {
    step();
  } catch {
    // The reason why it was undone is the one that is told.
  }
}
