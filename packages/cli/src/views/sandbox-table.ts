/** The columns of `ls` and `fork`. */
import type { SandboxInfo } from "@forkd/contract";
import { formatLimits, formatTimeouts } from "../options/limits.ts";
import { formatNetwork } from "../options/network.ts";
import { formatAge, formatPairs, formatSeconds, type Column } from "../terminal/table.ts";

export function sandboxColumns(nowMs = Date.now()): readonly Column<SandboxInfo>[] {
  return [
    { title: "ID", value: ({ id }) => id, id: true },
    { title: "TAG", value: ({ snapshot_tag }) => snapshot_tag },
    { title: "INDEX", value: ({ index }) => String(index), align: "right" },
    { title: "STATE", value: ({ state }) => state },
    {
      title: "READY MS",
      // Unknown (0) for a sandbox that an earlier daemon started.
      value: ({ state, ready_ms }) => (state === "paused" || ready_ms === 0 ? "-" : ready_ms.toFixed(1)),
      align: "right",
      drop: 2,
    },
    { title: "PID", value: ({ pid }) => (pid === undefined ? "-" : String(pid)), align: "right", drop: 1 },
    { title: "CREATED", value: ({ created_at_unix }) => formatAge(created_at_unix, nowMs) },
    {
      title: "TTL",
      drop: 4,
      value: ({ expires_at_unix }) =>
        expires_at_unix === undefined ? "-" : formatSeconds(expires_at_unix - nowMs / 1000),
    },
    { title: "WORKSPACE", value: ({ workspace }) => workspace ?? "-", drop: 3 },
    { title: "LABELS", value: ({ labels }) => formatPairs(labels) || "-" },
  ];
}

/** The additional columns of `ls --wide`. */
export function wideColumns(): readonly Column<SandboxInfo>[] {
  return [
    { title: "OWNER", value: ({ owner }) => owner ?? "-" },
    { title: "LIMITS", value: (info) => formatLimits(info) || "-" },
    { title: "TIMEOUTS", value: (info) => formatTimeouts(info) || "-" },
    { title: "JAIL", value: ({ jail }) => jail ?? "-" },
    { title: "NETWORK", value: (info) => formatNetwork(info) || "-" },
    { title: "SECRETS", value: ({ secrets }) => secrets?.join(",") || "-" },
  ];
}

/** Why sandboxes are dead or could not be paused, as the last column; none if there are no reasons. */
export function reasonColumns(shown: readonly SandboxInfo[]): readonly Column<SandboxInfo>[] {
  if (shown.every(({ reason }) => reason === undefined)) return [];
  return [{ title: "REASON", value: ({ reason }) => reason ?? "-", below: true }];
}
