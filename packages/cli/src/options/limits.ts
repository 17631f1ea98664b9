/** What sandboxes may take and how long they may be left alone: options of `fork`, `branch` and `workspace create`, and how it is shown. */
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
  bestEffort?: true;
  idleTimeout?: number;
  onTimeout?: "kill" | "pause";
  autoResume?: true;
};

const megabyte = 1_000_000;

export function addLimitOptions(command: Command): Command {
  return command
    .option("--memory-limit-mib <mib>", "memory that the VMM may take on the host", wholeNumber(32))
    .option("--cpu-percent <percent>", "CPU time in percent of one core", wholeNumber(1))
    .option("--pids <count>", "threads that the VMM may have on the host", wholeNumber(16))
    .option("--io-read-mbps <rate>", "megabytes per second read from the disk", wholeNumber(1))
    .option("--io-write-mbps <rate>", "megabytes per second written to the disk", wholeNumber(1))
    .option(
      "--disk-limit-mib <mib>",
      "what the disk may take on the host beyond its snapshot",
      wholeNumber(8),
    )
    .option("--best-effort", "go without limits that this host cannot hold a sandbox to")
    .option(
      "--idle-timeout <duration>",
      "kill or pause after this time without a call into it",
      parseLifetime,
    )
    .addOption(
      new Option("--on-timeout <action>", "what follows when a time is over").choices(["kill", "pause"]),
    )
    .option("--auto-resume", "a call into a paused sandbox resumes it first");
}

type LimitFields = Pick<RequestOf<"fork">, "limits" | "idle_timeout_secs" | "on_timeout" | "auto_resume">;

/** The part of a request that the options give. */
export function readLimits(options: LimitOptions): LimitFields {
  const { ioReadMbps, ioWriteMbps } = options;
  const limits: LimitFields["limits"] = {
    ...(options.memoryLimitMib !== undefined && { memory_mib: options.memoryLimitMib }),
    ...(options.cpuPercent !== undefined && { cpu_percent: options.cpuPercent }),
    ...(options.pids !== undefined && { pids: options.pids }),
    ...(ioReadMbps !== undefined && { io_read_bps: ioReadMbps * megabyte }),
    ...(ioWriteMbps !== undefined && { io_write_bps: ioWriteMbps * megabyte }),
    ...(options.diskLimitMib !== undefined && { disk_mib: options.diskLimitMib }),
    ...(options.bestEffort && { best_effort: true }),
  };
  return {
    ...(Object.keys(limits).length > 0 && { limits }),
    ...(options.idleTimeout !== undefined && { idle_timeout_secs: options.idleTimeout }),
    ...(options.onTimeout !== undefined && { on_timeout: options.onTimeout }),
    ...(options.autoResume && { auto_resume: true }),
  };
}

/** `memory_mib=128 cpu_percent=50!`; one that the sandbox is not held to has a mark. */
export function formatLimits({ limits = {}, limits_not_enforced: missing = [] }: SandboxInfo): string {
  return Object.entries(limits)
    .map(([name, value]) => `${name}=${value}${missing.some(({ limit }) => limit === name) ? "!" : ""}`)
    .join(" ");
}

/** `10m kill`, with `resumes` where a call wakes it. */
export function formatTimeouts(info: SandboxInfo): string {
  const { idle_timeout_secs: idle, on_timeout: action, auto_resume: wakes } = info;
  return [
    ...(idle === undefined ? [] : [formatSeconds(idle)]),
    ...(action === undefined ? [] : [action]),
    ...(wakes ? ["resumes"] : []),
  ].join(" ");
}
