/**
 * Names and places of sandboxes. Ids cannot be guessed, and everything of a sandbox on the host is named
 * after its id.
 */
import { randomBytes, randomUUID } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { sandboxIdPattern } from "@forkd/contract";
import { isErrno } from "@forkd/base";
import type { RuntimeConfig } from "../config.ts";

export function newSandboxId(): string {
  return `sb-${randomBytes(12).toString("hex")}`;
}

export type GuestIdentity = { hostname: string; machineId: string; bootId: string };

export function guestIdentity(sandboxId: string): GuestIdentity {
  return { hostname: sandboxId, machineId: randomBytes(16).toString("hex"), bootId: randomUUID() };
}

/** What a sandbox has on the host from its start until it is killed. */
export type SandboxHome = {
  dir: string;
  socketDir: string;
  /** what a later daemon must know about it */
  recordPath: string;
};

export function sandboxHome(config: RuntimeConfig, id: string): SandboxHome {
  const dir = join(config.dataDir, "sandboxes", id);
  return { dir, socketDir: join(config.runtimeDir, id), recordPath: join(dir, "sandbox.json") };
}

/** The ids of all sandboxes that have a directory. */
export async function sandboxIds(config: RuntimeConfig): Promise<string[]> {
  try {
    return (await readdir(join(config.dataDir, "sandboxes"))).filter((name) => sandboxIdPattern.test(name));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  }
}

/** The paths of one machine of a sandbox. Resume and rewind give it another machine. */
export type SandboxPaths = {
  dir: string;
  socketDir: string;
  overlay: string;
  consolePath: string;
  logPath: string;
};

export function sandboxPaths(config: RuntimeConfig, id: string, machine: number): SandboxPaths {
  const home = sandboxHome(config, id);
  const dir = join(home.dir, String(machine));
  return {
    dir,
    socketDir: join(home.socketDir, String(machine)),
    overlay: join(dir, "disk-0.qcow2"),
    consolePath: join(dir, "console.log"),
    logPath: join(dir, "vmm.log"),
  };
}
