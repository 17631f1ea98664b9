/**
 * Runs commands that must be root for the files they create.
 *
 * They run in their own PID and mount namespaces: when the first process exits, the kernel kills all others
 * and removes every mount. So a cancelled build leaves no /proc or /dev mounted under the directory that is
 * deleted next. A user who is not root gets a user namespace in which the ids of /etc/subuid represent the
 * other users.
 */
import { isErrno, removeTree, type ProgramResult } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { runTool, ToolFailure, type ToolOptions } from "./tool.ts";

export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Arguments of unshare(1) in front of a command. */
function namespaceArguments(root: boolean): string[] {
  const user = root ? [] : ["--user", "--map-root-user", "--map-auto"];
  return [...user, "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc", "--"];
}

/** Runs a program as root of its own namespaces. */
export async function runAsRoot(
  program: string,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<ProgramResult> {
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

/** Removes a tree that may contain files of other (subordinate) users. */
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
