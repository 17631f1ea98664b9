/** What `info` shows of a sandbox. */
import type { ExecInfo, SandboxInfo, SandboxStats, WorkspaceInfo } from "@forkd/contract";
import { formatLimits } from "../options/limits.ts";
import { formatNetwork } from "../options/network.ts";
import { formatBytes, formatPairs, formatSeconds } from "../terminal/table.ts";
import { factsOf, formatTime, type Fact } from "./facts.ts";

/** A sandbox and everything around it; null where it is not known. */
export type SandboxDetail = SandboxInfo & {
  readonly workspace_info: WorkspaceInfo | null;
  readonly stats: SandboxStats | null;
  /** Tags below the sandbox's snapshot, the nearest first; null if the snapshot was removed. */
  readonly ancestors: readonly string[] | null;
  /** Tags of the snapshots that were made from it. */
  readonly branches: readonly string[];
  /** null unless the sandbox runs */
  readonly commands: readonly ExecInfo[] | null;
};

export function describeSandbox(detail: SandboxDetail): Fact[] {
  const { workspace_info: workspace, stats } = detail;
  return [
    ["id", detail.id],
    ...factsOf("workspace", workspace ? `${workspace.name}, ${workspace.status}` : detail.workspace),
    ["labels", formatPairs(detail.labels) || "none"],
    ["state", detail.state],
    ...factsOf("reason", detail.reason),
    ["snapshot", detail.snapshot_tag],
    ["index", String(detail.index)],
    ["ancestors", detail.ancestors === null ? "unknown, snapshot removed" : names(detail.ancestors)],
    ["branches", names(detail.branches)],
    ...factsOf("owner", detail.owner),
    ["hostname", detail.hostname],
    ["languages", detail.languages.join(", ") || "none"],
    ...times(detail),
    ...limits(detail),
    ["machine", `${detail.vcpus} vCPU, ${detail.memory_mib} MiB, ${detail.accelerator}`],
    ...factsOf("jail", detail.jail),
    ...network(detail),
    ...factsOf("pid", detail.pid === undefined ? undefined : String(detail.pid)),
    ...(stats ? usage(stats) : []),
  ];
}

function names(all: readonly string[]): string {
  return all.join(" ") || "none";
}

function times(detail: SandboxDetail): Fact[] {
  const { paused_at_unix: paused, expires_at_unix: expires, ready_ms: readyMs } = detail;
  const left = expires === undefined ? "" : formatSeconds(expires - Date.now() / 1000);
  return [
    ["created", formatTime(detail.created_at_unix)],
    // Unknown (0) for a sandbox that an earlier daemon started.
    ...factsOf("ready in", readyMs === 0 ? undefined : `${readyMs.toFixed(1)} ms`),
    ...factsOf("paused", paused === undefined ? undefined : formatTime(paused)),
    ...factsOf(
      "active",
      detail.workspace_info ? formatTime(detail.workspace_info.last_active_unix) : undefined,
    ),
    ["expires", expires === undefined ? "never" : `${new Date(expires * 1000).toISOString()} (in ${left})`],
  ];
}

function limits(detail: SandboxDetail): Fact[] {
  const { idle_timeout_secs: idle } = detail;
  return [
    ["limits", formatLimits(detail) || "none"],
    ...(detail.limits_not_enforced ?? []).map(({ limit, reason }): Fact => [
      "not enforced",
      `${limit}: ${reason}`,
    ]),
    ["idle timeout", idle === undefined ? "none" : formatSeconds(idle)],
    ["on timeout", detail.on_timeout ?? "kill"],
    ["auto-resume", detail.auto_resume ? "yes" : "no"],
  ];
}

function network({ network: found, secrets }: SandboxDetail): Fact[] {
  const note = found?.note === undefined ? "" : ` (${found.note})`;
  return [
    ...factsOf("network", found && `${formatNetwork({ network: found })}${note}`),
    ...factsOf("secrets", secrets?.join(" ")),
  ];
}

function usage(stats: SandboxStats): Fact[] {
  const { private_bytes: own, shared_bytes: shared, pss_bytes: pss, cpu_seconds: cpu } = stats;
  const memory =
    own === undefined || shared === undefined || pss === undefined
      ? undefined
      : `${formatBytes(own)} private, ${formatBytes(shared)} shared, ${formatBytes(pss)} proportional`;
  return [
    ...factsOf("cpu time", cpu === undefined ? undefined : `${cpu.toFixed(1)} s`),
    ...factsOf("memory", memory),
    ["disk", formatBytes(stats.disk_bytes)],
  ];
}
