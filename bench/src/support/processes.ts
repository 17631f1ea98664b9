/** What /proc says of VMM processes. */
import { readFileSync } from "node:fs";

const ticksPerSecond = 100;

/** CPU seconds of a process so far. */
export function cpuSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond;
}

/** Bytes of guest memory that a child no longer shares with its snapshot. */
export function divergedBytes(pid: number): number {
  const text = readFileSync(`/proc/${pid}/smaps`, "latin1");
  const parts = text.split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  const memory = parts.filter((part) => /\/memory$/m.test(part.slice(0, part.indexOf("\n"))));
  return memory.reduce((sum, part) => sum + Number(/^Anonymous:\s+(\d+) kB/m.exec(part)?.[1] ?? 0) * 1024, 0);
}

export function pssBytes(pid: number): number {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "latin1");
  return Number(/^Pss:\s+(\d+) kB/m.exec(text)?.[1] ?? 0) * 1024;
}

export function rssBytes(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1] ?? 0) * 1024;
}
