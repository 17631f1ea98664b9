/**
 * CPU priority on a busy host. Every call passes through the daemon, which needs little CPU time. With as
 * many busy machines as cores its fair share is less than that, and then every call waits. So the daemon runs
 * at a higher priority than what it starts.
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";
import { isErrno } from "./atomic-file.ts";

/** the priority this process started with, if it was changed */
let before: number | undefined;

export type Priority = {
  nice: number;
  /** priority of its session, where the kernel schedules by session */
  autogroup?: number;
  /** why the requested priority was not set */
  reason?: string;
};

/** A lower number runs first. A priority that is not allowed stays unchanged. */
export function prioritise(nice: number): Priority {
  const was = getPriority();
  try {
    setPriority(nice);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return { nice: was, reason: "only root or CAP_SYS_NICE may raise the priority" };
  }
  before = was;
  return { nice, ...(ownsSession() && weighSession(nice)) };
}

/** Gives a process that this one has started the priority that this one started with. */
export function asOrdinary(pid: number | undefined): void {
  if (before === undefined || pid === undefined) return;
  try {
    setPriority(pid, before);
  } catch {
    // It has exited, or belongs to another user.
  }
}

function isRefusal(error: unknown): boolean {
  const info: unknown = error instanceof Error && "info" in error ? error.info : undefined;
  const code = typeof info === "object" && info !== null && "code" in info ? info.code : undefined;
  return code === "EACCES" || code === "EPERM";
}

/** A daemon in the foreground shares its session with a shell, whose other programs must not be favoured. */
function ownsSession(): boolean {
  const afterName = readFileSync("/proc/self/stat", "latin1").split(") ").at(-1)?.split(" ") ?? [];
  return Number(afterName[3]) === process.pid;
}

/** Where the kernel shares time between sessions first, priorities only count within a session. */
function weighSession(nice: number): { autogroup?: number } {
  try {
    writeFileSync("/proc/self/autogroup", String(nice));
    return { autogroup: nice };
  } catch (error) {
    if (!isErrno(error, "ENOENT", "EACCES", "EPERM", "EAGAIN", "EROFS")) throw error;
    return {};
  }
}

const background = 10;
const capSysNice = 23n;

/** Whether a priority that was lowered can be raised again. */
const mayRaise = (() => {
  try {
    const effective = /^CapEff:\s+([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1];
    return effective !== undefined && ((BigInt(`0x${effective}`) >> capSysNice) & 1n) === 1n;
  } catch {
    return false;
  }
})();

/**
 * Makes a process yield to all others, until asForeground(). Call it as soon as the process runs: its threads
 * inherit the priority. It has the ordinary priority where that could not be undone.
 */
export function asBackground(pid: number | undefined): void {
  if (!mayRaise) asOrdinary(pid);
  else if (pid !== undefined) weigh(pid, background);
}

/** Ends asBackground(), for all threads of the process. */
export function asForeground(pid: number): void {
  if (mayRaise) weigh(pid, before ?? getPriority());
}

function weigh(pid: number, nice: number): void {
  // Priorities belong to threads. Where the kernel shares time between sessions first, the session counts.
  for (const thread of orNothing(() => readdirSync(`/proc/${pid}/task`)) ?? [])
    orNothing(() => setPriority(Number(thread), nice));
  orNothing(() => writeFileSync(`/proc/${pid}/autogroup`, String(nice)));
}

/** The process or a thread of it may have exited, and not every kernel schedules by session. */
function orNothing<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
