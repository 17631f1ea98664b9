/** Patterns, names and limits that need no schema. Imports no code. */
import type { ForkEntry, SandboxInfo } from "../sandboxes.ts";

export const tagPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const sandboxIdPattern = /^sb-[0-9a-f]{24}$/;

/** Largest stdout or stderr that a call without streaming returns, in bytes; the rest is dropped and `truncated` says so. */
export const maxBufferedOutput = 8 * 1024 * 1024;

export const signalNames = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGTERM",
  "SIGKILL",
  "SIGSTOP",
  "SIGCONT",
  "SIGWINCH",
] as const;

export function isSandbox(entry: ForkEntry): entry is SandboxInfo {
  return "id" in entry;
}
