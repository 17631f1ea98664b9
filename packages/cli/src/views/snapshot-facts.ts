/** What `info` shows of a snapshot. */
import type { HazardOutcome, SnapshotDetail } from "@forkd/contract";
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
    ...image(detail),
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
    ...verification(detail),
    ["dependents", detail.dependents.join(" ") || "none"],
    ["sandboxes", detail.sandboxes.join(" ") || "none"],
  ];
}

/** The container image that it was made from. */
function image({ image: name, image_config: config }: SnapshotDetail): Fact[] {
  if (name === undefined || !config) return [];
  const list = (texts: readonly string[]) => (texts.length === 0 ? undefined : texts.join(" "));
  const words = (argv: readonly string[]) => (argv.length === 0 ? undefined : JSON.stringify(argv));
  return [
    ["image", `${name} (${config.digest})`],
    ...factsOf("  entrypoint", words(config.entrypoint)),
    ...factsOf("  command", words(config.cmd)),
    ...factsOf("  workdir", config.workdir),
    ...factsOf("  user", config.user),
    ...factsOf("  ports", list(config.ports)),
    ...factsOf("  volumes", list(config.volumes)),
    ...factsOf("  labels", list(Object.entries(config.labels).map(([key, value]) => `${key}=${value}`))),
  ];
}

/** What it requires, and the last result of `verify`. */
function verification({ require, verification: last, id }: SnapshotDetail): Fact[] {
  const required = factsOf("requires", require?.join(", "));
  if (!last) return [...required, ["verified", "never"]];
  const of = last.snapshot_id === id ? "" : `, as a branch of ${last.tag}`;
  const old = last.current ? "" : ", with another version or CPU, so it does not count";
  const words = (outcome: HazardOutcome) =>
    last.hazards.flatMap((hazard) => (hazard.outcome === outcome ? [hazard.id] : [])).join(", ");
  return [
    ...required,
    ["verified", `${last.outcome}, ${formatTime(last.verified_at_unix)}${of}${old}`],
    ...factsOf("  failed", words("fail") || undefined),
    ...factsOf("  warned", words("warn") || undefined),
    ...factsOf("  passed", words("pass") || undefined),
    ...factsOf("  not applicable", words("not_applicable") || undefined),
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
