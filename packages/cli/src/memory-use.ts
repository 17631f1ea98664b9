/** Memory of a VMM process, where this host shows it. */
import { readFile } from "node:fs/promises";

export type MemoryUse = { readonly privateKib: number; readonly sharedKib: number };

/** Undefined if the process is gone, belongs to another user or runs on another host. */
export async function readMemoryUse(pid: number | undefined): Promise<MemoryUse | undefined> {
  if (pid === undefined) return undefined;
  const text = await readFile(`/proc/${pid}/smaps_rollup`, "utf8").catch(() => undefined);
  return text === undefined ? undefined : parseSmapsRollup(text);
}

export function parseSmapsRollup(text: string): MemoryUse {
  const sum = (...names: string[]) =>
    names.reduce(
      (total, name) => total + Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1] ?? 0),
      0,
    );
  return {
    privateKib: sum("Private_Clean", "Private_Dirty"),
    sharedKib: sum("Shared_Clean", "Shared_Dirty"),
  };
}
