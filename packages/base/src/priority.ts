/**
 * Whose turn it is on a busy host. Every call passes through the daemon, which needs little: with as many machines at work as there are
 * cores, or more, its fair share is less than that, and then everybody waits for it. So it goes before what it starts.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { getPriority, setPriority } from "node:os";
import { isErrno } from "./atomic-file.ts";

/** what this process had when it began, if it was changed */
let before: number | undefined;

export type Priority = {
  nice: number;
  /** of its session, where the kernel weighs sessions */
  autogroup?: number;
  /** why it is not what was asked for */
  reason?: string;
};

/** A lower number goes first. Whatever is not allowed stays as it is. */
export function prioritise(nice: number): Priority {
  const was = getPriority();
  try {
    setPriority(nice);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    return { nice: was, reason: "only root or CAP_SYS_NICE may go before others" };
  }
  before = was;
  return { nice, ...(ownsSession() && weighSession(nice)) };
}

/** A process that this one has started gets what this one had when it began. */
export function asOrdinary(pid: number | undefined): void {
  if (before === undefined || pid === undefined) return;
  try {
    setPriority(pid, before);
  } catch {
    // It has ended, or is another user's.
  }
}

function isRefusal(error: unknown): boolean {
  const info: unknown = error instanceof Error && "info" in error ? error.info : undefined;
  const code = typeof info === "object" && info !== null && "code" in info ? info.code : undefined;
  return code === "EACCES" || code === "EPERM";
}

/** A daemon in the foreground shares its session with a shell, whose other programs are not ours to favour. */
function ownsSession(): boolean {
  const afterName = readFileSync("/proc/self/stat", "latin1").split(") ").at(-1)?.split(" ") ?? [];
  return Number(afterName[3]) === process.pid;
}

/** Where the kernel shares time between sessions first, priorities count within a session only. */
function weighSession(nice: number): { autogroup?: number } {
  try {
    writeFileSync("/proc/self/autogroup", String(nice));
    return { autogroup: nice };
  } catch (error) {
    if (!isErrno(error, "ENOENT", "EACCES", "EPERM", "EAGAIN", "EROFS")) throw error;
    return {};
  }
}
