/**
 * One control group: a directory in each hierarchy that it needs. All limits are set before the first process
 * is added, so no process ever runs without them.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { rmdir } from "node:fs/promises";
import { join } from "node:path";
import { isErrno } from "@forkd/base";
import type { Controller } from "./hierarchies.ts";

const mib = 1024 * 1024;
const periodUs = 100_000;
/** tolerance, because the kernel charges memory to a group in batches */
const nearBytes = 2 * mib;
/** how long killed processes may take to exit */
const leaveMs = 10_000;

export type GroupLimits = {
  memoryMib?: number | undefined;
  /** of one core */
  cpuPercent?: number | undefined;
  /** threads */
  pids?: number | undefined;
};

/** Where memory ran out: `limit` is the group's own limit, `host` is anything above the group. */
type OomKill = "limit" | "host";

export type Place = { version: 1 | 2; dir: string };
export type Places = Partial<Record<Controller, Place>>;

export function controllersOf(limits: GroupLimits): Controller[] {
  return [
    ...(limits.memoryMib === undefined ? [] : ["memory" as const]),
    ...(limits.cpuPercent === undefined ? [] : ["cpu" as const]),
    ...(limits.pids === undefined ? [] : ["pids" as const]),
  ];
}

export class Group implements AsyncDisposable {
  readonly name: string;
  readonly #places: Places;

  constructor(name: string, places: Places) {
    this.name = name;
    this.#places = places;
  }

  /** The directory with the files of a controller. */
  dirOf(controller: Controller): string | undefined {
    return this.#places[controller]?.dir;
  }

  /** In version 2 all controllers share one directory. */
  get dirs(): string[] {
    return [...new Set(Object.values(this.#places).map(({ dir }) => dir))];
  }

  make(): void {
    for (const dir of this.dirs) mkdirSync(dir, { recursive: true });
  }

  limit(limits: GroupLimits): void {
    if (limits.memoryMib !== undefined) this.#limitMemory(limits.memoryMib * mib);
    if (limits.cpuPercent !== undefined) this.#limitCpu(limits.cpuPercent);
    if (limits.pids !== undefined) this.#write("pids", "pids.max", String(limits.pids));
  }

  #limitMemory(bytes: number): void {
    if (this.#places.memory?.version === 2) {
      this.#write("memory", "memory.max", String(bytes));
      this.#writeIfThere("memory", "memory.swap.max", "0");
    } else {
      this.#write("memory", "memory.limit_in_bytes", String(bytes));
      // This limits memory and swap together.
      this.#writeIfThere("memory", "memory.memsw.limit_in_bytes", String(bytes));
    }
  }

  #limitCpu(percent: number): void {
    const quotaUs = Math.round((percent * periodUs) / 100);
    if (this.#places.cpu?.version === 2) return this.#write("cpu", "cpu.max", `${quotaUs} ${periodUs}`);
    this.#write("cpu", "cpu.cfs_period_us", String(periodUs));
    this.#write("cpu", "cpu.cfs_quota_us", String(quotaUs));
  }

  /** Adds a process with all its threads. Memory that it has already used stays charged to its old group. */
  add(pid: number): void {
    for (const dir of this.dirs) writeFileSync(join(dir, "cgroup.procs"), String(pid));
  }

  /** Whether the kernel killed a process because this group, or one above it, ran out of memory. */
  oomKill(): OomKill | undefined {
    const place = this.#places.memory;
    if (!place) return undefined;
    const events = read(join(place.dir, place.version === 2 ? "memory.events" : "memory.oom_control"));
    if (!(numberIn(events, "oom_kill") > 0)) return undefined;
    if (place.version === 2) return numberIn(events, "oom") > 0 ? "limit" : "host";
    // Not every kernel counts limit hits, but all record the peak usage.
    const most = Number(read(join(place.dir, "memory.max_usage_in_bytes")));
    const limit = Number(read(join(place.dir, "memory.limit_in_bytes")));
    return most >= limit - nearBytes ? "limit" : "host";
  }

  get pids(): number[] {
    const all = this.dirs.flatMap((dir) => read(join(dir, "cgroup.procs")).split("\n"));
    return [...new Set(all.filter((line) => line !== "").map(Number))];
  }

  /** Removes the group. Its processes must have been killed, but may still be exiting. */
  async [Symbol.asyncDispose](): Promise<void> {
    const until = Date.now() + leaveMs;
    for (const dir of this.dirs) {
      for (let pauseMs = 1; ; pauseMs = Math.min(2 * pauseMs, 50)) {
        try {
          await rmdir(dir);
          break;
        } catch (error) {
          if (isErrno(error, "ENOENT")) break;
          if (!isErrno(error, "EBUSY") || Date.now() > until) throw error;
        }
        // Poll, because a version 1 group has no event for the exit of its last process.
        await new Promise((resolve) => setTimeout(resolve, pauseMs));
      }
    }
  }

  #write(controller: Controller, file: string, value: string): void {
    const dir = this.dirOf(controller);
    if (dir === undefined) throw new Error(`The group ${this.name} has no ${controller} controller`);
    writeFileSync(join(dir, file), value);
  }

  #writeIfThere(controller: Controller, file: string, value: string): void {
    try {
      readFileSync(join(this.dirOf(controller) ?? "", file));
    } catch (error) {
      // Without swap accounting the file does not exist.
      if (isErrno(error, "ENOENT")) return;
      throw error;
    }
    this.#write(controller, file, value);
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENODEV")) return "";
    throw error;
  }
}

function numberIn(text: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1] ?? 0);
}
