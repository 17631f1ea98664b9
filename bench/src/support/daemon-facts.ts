/** What a daemon holds, from /proc and its directories. */
import { readdirSync, readFileSync } from "node:fs";
import { isErrno } from "@forkd/base";
import { rssBytes } from "./processes.ts";

export type DaemonFacts = {
  rss_bytes: number;
  /** anonymous memory: heap and buffers, without the code that is mapped */
  anonymous_bytes: number;
  descriptors: number;
  threads: number;
  /** processes below it, VMMs among them */
  processes: number;
  /** files and directories below its data and runtime directories, with those of images and snapshots */
  files: number;
};

function count(dir: string, attempts = 20): number {
  try {
    return readdirSync(dir, { recursive: true }).length;
  } catch (error) {
    // A directory was removed while this read it.
    if (isErrno(error, "ENOENT") && attempts > 1) return count(dir, attempts - 1);
    throw error;
  }
}

function childrenOf(pid: number): number {
  return readdirSync(`/proc/${pid}/task`)
    .map((task) => readFileSync(`/proc/${pid}/task/${task}/children`, "latin1").trim())
    .reduce((sum, text) => sum + (text === "" ? 0 : text.split(" ").length), 0);
}

export function factsOf(pid: number, dirs: readonly string[]): DaemonFacts {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0);
  return {
    rss_bytes: rssBytes(pid),
    anonymous_bytes: field("RssAnon") * 1024,
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    threads: field("Threads"),
    processes: childrenOf(pid),
    files: dirs.reduce((sum, dir) => sum + count(dir), 0),
  };
}
