/**
 * Fails a test file that leaves a process, mount, socket, file or control group of a test directory behind.
 * Every test file imports this module.
 */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { isErrno } from "@forkd/base";
import { allGroupsOf } from "./groups.ts";
import { testPrefix } from "./places.ts";

function processes(): string[] {
  const found: string[] = [];
  for (const pid of readdirSync("/proc").filter(
    (name) => /^\d+$/.test(name) && Number(name) !== process.pid,
  )) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "latin1").replaceAll("\0", " ");
      const cwd = readlinkSync(`/proc/${pid}/cwd`);
      const state = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.[0];
      if (state !== "Z" && (command.includes(testPrefix) || cwd.startsWith(testPrefix)))
        found.push(`${pid}: ${command.slice(0, 200)}`);
    } catch (error) {
      if (!isErrno(error, "ENOENT", "ESRCH", "EACCES")) throw error;
    }
  }
  return found;
}

/** data directories of this file's daemons; the names of control groups derive from them */
const dataDirs = new Set<string>();
export function noteDataDir(dataDir: string): void {
  dataDirs.add(dataDir);
}

export function leftovers(): { processes: string[]; mounts: string[]; files: string[]; groups: string[] } {
  return {
    groups: [...dataDirs].flatMap(allGroupsOf),
    processes: processes(),
    mounts: readFileSync("/proc/mounts", "utf8")
      .split("\n")
      .filter((line) => line.includes(testPrefix)),
    files: readdirSync("/tmp").filter((name) => `/tmp/${name}`.startsWith(testPrefix)),
  };
}

// After all hooks of the file.
process.on("exit", () => {
  const left = leftovers();
  if (Object.values(left).every((found) => found.length === 0)) return;
  process.stderr.write(`Left behind: ${JSON.stringify(left, null, 2)}\n`);
  process.exitCode = 1;
});
