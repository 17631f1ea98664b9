/** Limits and timeouts of sandboxes: options of `fork`, `branch` and `workspace create`, and their output. */
import type { SandboxInfo } from "@forkd/contract";
import type { SandboxOptions } from "@forkd/sdk";
import { Option, type Command } from "commander";
import { parseLifetime, wholeNumber } from "./arguments.ts";
import { formatSeconds } from "../terminal/table.ts";

export type LimitOptions = {
  memoryLimitMib?: number;
  cpuPercent?: number;
  pids?: number;
  ioReadMbps?: number;
  ioWriteMbps?: number;
  diskLimitMib?: number;
  netMbps?: number;
  netLimitMib?: number;
  netConnections?: number;
  bestEffort?: true;
  idleTimeout?: number;
  onTimeout?: "kill" | "pause";
  autoResume?: true;
};

const megabyte = 1_000_000;
const mebibyte = 1024 * 1024;

export function addLimitOptions(command: Command): Command {
  return command
    .option("--memory-limit-mib <mib>", "Limit the host memory of the VMM", wholeNumber(32))
    .option("--cpu-percent <percent>", "Limit the CPU time, in percent of one core", wholeNumber(1))
    .option("--pids <count>", "Limit the threads of the VMM", wholeNumber(16))
    .option("--io-read-mbps <rate>", "Limit disk reads, in megabytes per second", wholeNumber(1))
    .option("--io-write-mbps <rate>", "Limit disk writes, in megabytes per second", wholeNumber(1))
    .option("--disk-limit-mib <mib>", "Limit the disk space in addition to the snapshot", wholeNumber(8))
    .option("--net-mbps <rate>", "Limit the network each way, in megabytes per second", wholeNumber(1))
    .option("--net-limit-mib <mib>", "Limit all network traffic of a machine", wholeNumber(1))
    .option("--net-connections <count>", "Limit open network connections", wholeNumber(1, 65_536))
    .option("--best-effort", "Skip limits that this host cannot enforce")
    .option("--idle-timeout <duration>", "Kill or pause after this time without a call", parseLifetime)
    .addOption(new Option("--on-timeout <action>", "Set the action of a timeout").choices(["kill", "pause"]))
    .option("--auto-resume", "Resume a paused sandbox when a call needs it");
}

type LimitFields = Pick<SandboxOptions, "limits" | "idleTimeoutMs" | "onTimeout" | "autoResume">;

/** What the options set. */
export function readLimits(options: LimitOptions): LimitFields {
  const { ioReadMbps, ioWriteMbps, netMbps, netLimitMib } = options;
  const limits: LimitFields["limits"] = {
    ...(options.memoryLimitMib !== undefined && { memoryMib: options.memoryLimitMib }),
    ...(options.cpuPercent !== undefined && { cpuPercent: options.cpuPercent }),
    ...(options.pids !== undefined && { pids: options.pids }),
    ...(ioReadMbps !== undefined && { ioReadBps: ioReadMbps * megabyte }),
    ...(ioWriteMbps !== undefined && { ioWriteBps: ioWriteMbps * megabyte }),
    ...(options.diskLimitMib !== undefined && { diskMib: options.diskLimitMib }),
    ...(netMbps !== undefined && { netBps: netMbps * megabyte }),
    ...(netLimitMib !== undefined && { netBytes: netLimitMib * mebibyte }),
    ...(options.netConnections !== undefined && { netConnections: options.netConnections }),
    ...(options.bestEffort && { bestEffort: true }),
  };
  return {
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(options.idleTimeout !== undefined && { idleTimeoutMs: options.idleTimeout * 1000 }),
    ...(options.onTimeout !== undefined && { onTimeout: options.onTimeout }),
    ...(options.autoResume && { autoResume: true }),
  };
}

/** `memory_mib=128 cpu_percent=50!`; `!` marks a limit that is not enforced. */
export function formatLimits({ limits = {}, limits_not_enforced: missing = [] }: SandboxInfo): string {
  return Object.entries(limits)
    .map(([name, value]) => `${name}=${value}${missing.some(({ limit }) => limit === name) ? "!" : ""}`)
    .join(" ");
}

/** `10m kill`, followed by `auto-resume` if that is on. */
export function formatTimeouts(info: SandboxInfo): string {
  const { idle_timeout_secs: idle, on_timeout: action, auto_resume: autoResume } = info;
  return [
    ...(idle === undefined ? [] : [formatSeconds(idle)]),
    ...(action === undefined ? [] : [action]),
    ...(autoResume ? ["auto-resume"] : []),
  ].join(" ");
}
