/** What `info` shows of a snapshot. */
import type { SnapshotDetail } from "@forkd/contract";
import { formatBytes } from "../terminal/table.ts";
import { factsOf, formatTime, type Fact } from "./facts.ts";

export function describeSnapshot(detail: SnapshotDetail): Fact[] {
  return [
    ["tag", detail.tag],
    ["id", detail.id],
    [
      "status",
      detail.bootable || detail.status !== "ready" ? detail.status : `${detail.status}, not bootable here`,
    ],
    ...factsOf("warning", detail.warning),
    ["created", formatTime(detail.created_at_unix)],
    ["recipe", detail.recipe ?? "-"],
    ...origin(detail),
    ["languages", detail.languages.join(", ") || "-"],
    ["machine", `${detail.vcpus} vCPU, ${detail.memory_mib} MiB, ${detail.accelerator}`],
    ["memory", `${formatBytes(detail.memory_physical_bytes)} of ${formatBytes(detail.memory_logical_bytes)}`],
    ["memory layer", detail.layer_bytes === 0 ? "none, memory is flat" : formatBytes(detail.layer_bytes)],
    ["flat cache", detail.flat_cache_bytes === 0 ? "none" : formatBytes(detail.flat_cache_bytes)],
    ["devices", formatBytes(detail.vmstate_bytes)],
    ["disk", formatBytes(detail.disk_bytes)],
    ["rootfs", `${sizeText(detail.rootfs_physical_bytes)} of ${formatBytes(detail.rootfs_bytes)}`],
    ["size", sizeText(detail.total_bytes)],
    ["own", `${sizeText(detail.own_bytes)}, which removing it would free`],
    ["directory", detail.dir],
    ["dependents", detail.dependents.join(" ") || "none"],
    ["sandboxes", detail.sandboxes.join(" ") || "none"],
  ];
}

/** Its place in its chain, and how a branch was made. */
function origin(detail: SnapshotDetail): Fact[] {
  const { branched_from, mode, pause_ms } = detail;
  return [
    ["parent", detail.parent_tag ?? "none"],
    ["depth", String(detail.chain_depth)],
    ["ancestors", detail.ancestors.join(" ") || "none"],
    ...factsOf("branched from", branched_from),
    ...factsOf("mode", mode),
    ...factsOf("pause", pause_ms === undefined ? undefined : `${pause_ms.toFixed(1)} ms`),
  ];
}

/** A daemon of an earlier version does not know all sizes. */
function sizeText(bytes: number | undefined): string {
  return bytes === undefined ? "?" : formatBytes(bytes);
}
