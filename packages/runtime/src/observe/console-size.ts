/**
 * Bounds the console and log of each machine, which are files on the host that a guest can fill. Files that
 * are too large are truncated; QEMU opens them for appending and continues at the beginning.
 */
import { stat, truncate } from "node:fs/promises";
import { isErrno, type Logger } from "@forkd/base";
import type { Sandbox } from "../sandbox/sandbox.ts";

export const consoleGuardMs = 10_000;
const maxBytes = 8 * 1024 * 1024;

export async function cutConsoles(sandboxes: readonly Sandbox[], log: Logger): Promise<void> {
  for (const sandbox of sandboxes) {
    const machine = sandbox.machineAtWork;
    if (!machine) continue;
    for (const path of [machine.paths.consolePath, machine.paths.logPath]) {
      try {
        if ((await stat(path)).size > maxBytes) await truncate(path, 0);
      } catch (error) {
        if (!isErrno(error, "ENOENT")) log.warn({ event: "console.cut", sandbox: sandbox.id, error });
      }
    }
  }
}
