/** Patterns, names and limits that need no schema. Imports nothing. */

export const tagPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const contextNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const serviceNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const sandboxIdPattern = /^sb-[0-9a-f]{24}$/;

/** Bytes of stdout or stderr that a call without streaming returns; `truncated`: the rest was dropped. */
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

/** Forms that a result of an eval can have. */
export const displayParts = [
  "text",
  "html",
  "markdown",
  "svg",
  "latex",
  "javascript",
  "png",
  "jpeg",
  "pdf",
  "json",
  "data",
  "chart",
  "extra",
] as const;
export type DisplayPart = (typeof displayParts)[number];

/** Scopes of callers. Each includes those before it. */
export const scopes = ["read", "run", "admin"] as const;
export type Scope = (typeof scopes)[number];

/** Whether an entry of a fork's answer is a sandbox, not the error of a child that could not be made. */
export function isSandbox<E extends object>(entry: E): entry is Extract<E, { id: string }> {
  return "id" in entry;
}
