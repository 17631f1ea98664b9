/** Settings of the runtime, already resolved and checked by whoever opens it. */
import { join } from "node:path";
import type { QuotaSettings } from "./quota-settings.ts";

/** keep: their machines run on for the next daemon; stop: they end, workspaces are saved before */
export type OnStop = "keep" | "stop";

export type RuntimeConfig = {
  /** snapshots, images, sandboxes */
  dataDir: string;
  /** sockets; a short path */
  runtimeDir: string;
  /** the guest's parts: build/forkd-agent, kernels/ */
  guestDir: string;
  accelerator: "auto" | "kvm" | "tcg";
  qemuPath: string;
  /** VMM processes kept ready per snapshot in use; 0 switches it off */
  poolSize: number;
  /** children started at the same time */
  forkParallelism: number;
  maxSandboxes: number;
  /** branches under way at the same time */
  branchConcurrency: number;
  /** what flat images may take on disk before the least recently used ones go */
  memoryCacheMib: number;
  /** what becomes of running sandboxes when the daemon stops */
  onStop: OnStop;
  /** how long a guest may take to boot */
  bootTimeoutMs: number;
  /** how long a child may take to answer */
  readyTimeoutMs: number;
  /** control group for machines alone, as a path that is seen from the daemon's own; undefined: below the daemon's own */
  machinesGroup?: string | undefined;
  /** what sandboxes may take */
  quota?: Partial<QuotaSettings> | undefined;
};

export const runtimeDefaults = {
  accelerator: "auto",
  qemuPath: "qemu-system-x86_64",
  poolSize: 4,
  maxSandboxes: 1000,
  branchConcurrency: 8,
  memoryCacheMib: 16_384,
  onStop: "keep",
  bootTimeoutMs: 180_000,
  readyTimeoutMs: 60_000,
} as const;

export function snapshotsDir(config: RuntimeConfig): string {
  return join(config.dataDir, "snapshots");
}

/** The agent's binary; it is also the tool that measures the host's TSC. */
export function agentPath(config: RuntimeConfig): string {
  return join(config.guestDir, "build", "forkd-agent");
}
