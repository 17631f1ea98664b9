/**
 * Commands that must be root of the files they make.
 *
 * They run in PID and mount namespaces of their own: when the first process ends, the kernel ends every other one and
 * drops every mount, so a cancelled build leaves no /proc or /dev mounted under the directory that is removed next.
 * A user who is not root gets a user namespace in which the subordinate ids of /etc/subuid stand for the other users.
 */
import { isErrno, removeTree } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { runTool, ToolFailure, type ToolOptions, type ToolResult } from "./tool.ts";

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Arguments of unshare(1) in front of a command. */
export function namespaceArguments(root: boolean): string[] {
  const user = root ? [] : ["--user", "--map-root-user", "--map-auto"];
  return [...user, "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--"];
}

/** Runs a program as root of its own namespaces. */
export async function runAsRoot(
  program: string,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<ToolResult> {
  try {
    return await runTool("unshare", [...namespaceArguments(isRoot()), program, ...args], options);
  } catch (error) {
    if (!(error instanceof ToolFailure) || !/^(unshare|newuidmap|newgidmap): /m.test(error.output))
      throw error;
    const remedy = isRoot()
      ? "Give the process CAP_SYS_ADMIN."
      : "Run as root, or install uidmap and add the user to /etc/subuid and /etc/subgid.";
    throw new AppError("host_not_ready", `Cannot build images: ${lastLine(error.output)}`, {
      remedy: advice(remedy),
      cause: error,
    });
  }
}

/** Removes a tree that may hold files of other (subordinate) users. */
export async function removeAsRoot(path: string): Promise<void> {
  try {
    await removeTree(path);
  } catch (error) {
    if (!isErrno(error, "EACCES", "EPERM")) throw error;
    await runAsRoot("rm", ["-rf", "--one-file-system", "--", path]);
  }
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}
