/** Facts about host processes from /proc. A pid alone is reused; pid and start time together name one process. */
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { isErrno } from "@forkd/base";

export type ProcessId = {
  pid: number;
  /** clock ticks since boot, field 22 of /proc/PID/stat */
  startTime: number;
};

/** PF_EXITING of the kernel */
const exitingFlag = 4;

/** The identity of a live process; undefined when there is none, or only its unreaped rest. */
export function identify(pid: number): ProcessId | undefined {
  return statOf(pid)?.id;
}

function statOf(pid: number): { id: ProcessId; flags: number } | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
  // The command name may hold spaces and brackets; the state is the field after its closing bracket.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z" || fields[0] === "X") return undefined;
  return { id: { pid, startTime: Number(fields[19]) }, flags: Number(fields[6]) };
}

/** It has ended or is about to: the kernel takes its memory from it first, then its sockets, and then tells its parent. */
export function isEnding({ pid, startTime }: ProcessId): boolean {
  const stat = statOf(pid);
  return stat?.id.startTime !== startTime || (stat.flags & exitingFlag) !== 0;
}

/** Ends a process at once; one that is gone already is as good. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!isErrno(error, "ESRCH")) throw error;
  }
}

let bootId: string | undefined;

/** What start times count from: a process of another boot is gone, whatever has its pid now. */
export function hostBootId(): string {
  return (bootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim());
}

/** The arguments of a live process; empty when it is gone or not ours to read. */
export function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH", "EACCES", "EPERM")) return [];
    throw error;
  }
}

export function isAlive(process: ProcessId): boolean {
  return identify(process.pid)?.startTime === process.startTime;
}

export type MemoryUse = { privateBytes: number; sharedBytes: number; pssBytes: number };

/** Memory of a process from smaps_rollup, or undefined when it is gone or not ours to read. */
export async function memoryUse(pid: number): Promise<MemoryUse | undefined> {
  let text: string;
  try {
    text = await readFile(`/proc/${pid}/smaps_rollup`, "latin1");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH", "EACCES", "EPERM")) return undefined;
    throw error;
  }
  const field = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? 0) * 1024;
  return {
    privateBytes: field("Private_Clean") + field("Private_Dirty"),
    sharedBytes: field("Shared_Clean") + field("Shared_Dirty"),
    pssBytes: field("Pss"),
  };
}

/** Ticks of the times in /proc/PID/stat; the kernel shows them in this unit on every architecture that forkd runs on */
const ticksPerSecond = 100;

/** CPU time that a process has had, in user and system mode, or undefined when it is gone. */
export async function cpuSeconds(pid: number): Promise<number | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "latin1");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
}
