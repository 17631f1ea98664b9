/**
 * Kernel samepage merging, switched on for a bounded time. It works on all processes of the host that offer
 * memory for it. The previous settings are restored, and merged pages are separated again.
 */
import { accessSync, constants, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { errorMessage } from "@forkd/contract";
import { rest } from "../deadline.ts";
import { cpuSeconds } from "../processes.ts";

const dir = "/sys/kernel/mm/ksm";
const pageMib = 4096 / 1024 / 1024;
/** Scans 100 MiB of mergeable memory in a second, if a core is free. */
const settings = { sleep_millisecs: "20", pages_to_scan: "512" };

/** Why this host cannot be measured; undefined if it can. */
export function ksmObstacle(): string | undefined {
  if (!existsSync(`${dir}/run`)) return "the kernel has no KSM";
  try {
    accessSync(`${dir}/run`, constants.W_OK);
  } catch (error) {
    return `cannot switch KSM on: ${errorMessage(error)}`;
  }
  return read("run") === "0" ? undefined : "KSM is on already";
}

export type KsmResult = {
  seconds: number;
  saved_mib: number;
  ksmd_cpu_seconds: number;
  full_scans: number;
};

/** Merges for `secs` and returns what that saved. */
export async function measureKsm(secs: number): Promise<KsmResult> {
  const before = Object.fromEntries(Object.keys(settings).map((name) => [name, read(name)]));
  const ksmd = ksmdPid();
  const [cpu, scans, shared] = [cpuSeconds(ksmd), Number(read("full_scans")), sharing()];
  const started = performance.now();
  try {
    for (const [name, value] of Object.entries(settings)) write(name, value);
    write("run", "1");
    await rest(secs * 1000);
    return {
      seconds: (performance.now() - started) / 1000,
      saved_mib: (sharing() - shared) * pageMib,
      ksmd_cpu_seconds: cpuSeconds(ksmd) - cpu,
      full_scans: Number(read("full_scans")) - scans,
    };
  } finally {
    write("run", "2"); // separates merged pages
    write("run", "0");
    for (const [name, value] of Object.entries(before)) write(name, value);
  }
}

/** Pages that are not there because another has their content. */
function sharing(): number {
  return Number(read("pages_sharing"));
}

function read(name: string): string {
  return readFileSync(`${dir}/${name}`, "latin1").trim();
}

function write(name: string, value: string): void {
  writeFileSync(`${dir}/${name}`, value);
}

/** The thread of the kernel that merges. */
function ksmdPid(): number {
  const found = readdirSync("/proc").find((name) => /^\d+$/.test(name) && nameOf(name) === "ksmd");
  if (found === undefined) throw new Error("There is no ksmd");
  return Number(found);
}

function nameOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "latin1").trim();
  } catch {
    return ""; // it has exited
  }
}
