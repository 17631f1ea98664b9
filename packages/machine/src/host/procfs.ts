/** Facts about host processes from /proc. Pids are reused; pid and start time together identify a process. */
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

/** The identity of a live process; undefined if there is none or only a zombie. */
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
  // The command name may contain spaces and brackets; the state is the field after its closing bracket.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z" || fields[0] === "X") return undefined;
  return { id: { pid, startTime: Number(fields[19]) }, flags: Number(fields[6]) };
}

/** True if the process has exited or is about to: the kernel closes sockets before it reports the exit. */
export function isEnding({ pid, startTime }: ProcessId): boolean {
  const stat = statOf(pid);
  return stat?.id.startTime !== startTime || (stat.flags & exitingFlag) !== 0;
}

/** Kills a process; does nothing if it has exited already. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!isErrno(error, "ESRCH")) throw error;
  }
}

let bootId: string | undefined;

/** Start times count from this boot: a process of another boot has exited, even if its pid is in use. */
export function hostBootId(): string {
  return (bootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim());
}

/** The arguments of a live process; empty if it has exited or we may not read them. */
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

/** Memory of a process from smaps_rollup; undefined if it has exited or we may not read it. */
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

/** Unit of the times in /proc/PID/stat, on every architecture that forkd runs on. */
const ticksPerSecond = 100;

/** CPU time of a process in user and system mode; undefined if it has exited. */
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
