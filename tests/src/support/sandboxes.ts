/** Helpers for sandboxes and processes. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { isErrno } from "@forkd/base";
import { identify } from "@forkd/machine";
import { Sandbox, type Forkd, type ForkOptions } from "@forkd/sdk";

/** Forks n children and asserts that every entry is a sandbox. */
export async function forkAll(
  forkd: Forkd,
  tag: string,
  n: number,
  options: ForkOptions = {},
): Promise<Sandbox[]> {
  const entries = await forkd.fork(tag, n, options);
  for (const entry of entries) if (!(entry instanceof Sandbox)) throw entry;
  assert.equal(entries.length, n);
  return entries as Sandbox[];
}

/** Whether the process runs. A zombie does not count. */
export function processExists(pid: number | undefined): boolean {
  return pid !== undefined && identify(pid) !== undefined;
}

/** Processes whose command line names something below the directory. */
export function processesOf(dir: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const state = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.[0];
        return state !== "Z" && readFileSync(`/proc/${pid}/cmdline`, "latin1").includes(`${dir}/`);
      } catch (error) {
        if (isErrno(error, "ENOENT", "ESRCH")) return false;
        throw error;
      }
    });
}

/** Resident memory of a process. */
export function residentBytes(pid: number | undefined): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1] ?? 0) * 1024;
}

/** Output of a command that must succeed, without the last newline. */
export async function sh(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout } = await sandbox.commands.run(["sh", "-c", script], { check: true });
  return stdout.replace(/\n$/, "");
}
