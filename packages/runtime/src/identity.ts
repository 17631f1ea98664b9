/** Names of a sandbox: unguessable, and everything of it on the host is named after its id. */
import { randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import type { RuntimeConfig } from "./config.ts";

export function newSandboxId(): string {
  return `sb-${randomBytes(12).toString("hex")}`;
}

export type GuestIdentity = { hostname: string; machineId: string; bootId: string };

export function guestIdentity(sandboxId: string): GuestIdentity {
  return { hostname: sandboxId, machineId: randomBytes(16).toString("hex"), bootId: randomUUID() };
}

/** Every path of one sandbox. */
export type SandboxPaths = {
  dir: string;
  socketDir: string;
  overlay: string;
  consolePath: string;
  logPath: string;
};

export function sandboxPaths(config: RuntimeConfig, id: string): SandboxPaths {
  const dir = join(config.dataDir, "sandboxes", id);
  return {
    dir,
    socketDir: join(config.runtimeDir, id),
    overlay: join(dir, "disk.qcow2"),
    consolePath: join(dir, "console.log"),
    logPath: join(dir, "vmm.log"),
  };
}
