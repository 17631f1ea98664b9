/** Names of a sandbox: unguessable, and everything of it on the host is named after its id. */
import { randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import type { RuntimeConfig } from "../config.ts";

export function newSandboxId(): string {
  return `sb-${randomBytes(12).toString("hex")}`;
}

export type GuestIdentity = { hostname: string; machineId: string; bootId: string };

export function guestIdentity(sandboxId: string): GuestIdentity {
  return { hostname: sandboxId, machineId: randomBytes(16).toString("hex"), bootId: randomUUID() };
}

/** What a sandbox has on the host for as long as it has a name. */
export type SandboxHome = {
  dir: string;
  socketDir: string;
  /** facts that outlive the daemon */
  recordPath: string;
};

export function sandboxHome(config: RuntimeConfig, id: string): SandboxHome {
  const dir = join(config.dataDir, "sandboxes", id);
  return { dir, socketDir: join(config.runtimeDir, id), recordPath: join(dir, "sandbox.json") };
}

/** Every path of one machine of a sandbox; a sandbox that is resumed or rewound gets another machine. */
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
