/** Which process, beyond a pid that may be used again: its start, and the boot that the start counts from. */
import { readFile } from "node:fs/promises";
import { isErrno } from "@forkd/base";

export type ProcessIdentity = {
  readonly pid: number;
  /** clock ticks since boot */
  readonly start_time: number;
  readonly boot_id: string;
};

/** undefined if there is no such process (or only its unreaped rest). */
export async function identifyProcess(pid: number): Promise<ProcessIdentity | undefined> {
  let stat: string;
  try {
    stat = await readFile(`/proc/${pid}/stat`, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return undefined;
    throw error;
  }
  // The name of the program stands in parentheses and may hold spaces; the state is field 3, the start field 22.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  if (fields[0] === "Z" || fields[0] === "X") return undefined;
  const bootId = (await readFile("/proc/sys/kernel/random/boot_id", "utf8")).trim();
  return { pid, start_time: Number(fields[19]), boot_id: bootId };
}

export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  const found = await identifyProcess(identity.pid);
  return found?.start_time === identity.start_time && found.boot_id === identity.boot_id;
}
