/** Limits and timeouts of sandboxes: options of `fork`, `branch` and `workspace create`, and their output. */
import type { RequestOf, SandboxInfo } from "@forkd/contract";
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

type LimitFields = Pick<RequestOf<"fork">, "limits" | "idle_timeout_secs" | "on_timeout" | "auto_resume">;

/** The fields of a request that the options set. */
export function readLimits(options: LimitOptions): LimitFields {
  const { ioReadMbps, ioWriteMbps, netMbps, netLimitMib } = options;
  const limits: LimitFields["limits"] = {
    ...(options.memoryLimitMib !== undefined && { memory_mib: options.memoryLimitMib }),
    ...(options.cpuPercent !== undefined && { cpu_percent: options.cpuPercent }),
    ...(options.pids !== undefined && { pids: options.pids }),
    ...(ioReadMbps !== undefined && { io_read_bps: ioReadMbps * megabyte }),
    ...(ioWriteMbps !== undefined && { io_write_bps: ioWriteMbps * megabyte }),
    ...(options.diskLimitMib !== undefined && { disk_mib: options.diskLimitMib }),
    ...(netMbps !== undefined && { net_bps: netMbps * megabyte }),
    ...(netLimitMib !== undefined && { net_bytes: netLimitMib * mebibyte }),
    ...(options.netConnections !== undefined && { net_connections: options.netConnections }),
    ...(options.bestEffort && { best_effort: true }),
  };
  return {
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(options.idleTimeout !== undefined && { idle_timeout_secs: options.idleTimeout }),
    ...(options.onTimeout !== undefined && { on_timeout: options.onTimeout }),
    ...(options.autoResume && { auto_resume: true }),
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
