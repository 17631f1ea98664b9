import type { SnapshotDetail } from "@forkd/contract";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../options/help.ts";
import { clean, formatAge, formatBytes } from "../terminal/table.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "Snapshot")
    .option("--verify", "Read all files and compare their digests")
    .addHelpText("after", examples("forkd info python-numpy", "forkd info python-numpy --verify"))
    .action(toAction(info));
}

async function info(cli: Cli, options: { verify?: true }, tag: string): Promise<void> {
  const forkd = await cli.daemon();
  using _progress = cli.progress(`Reading ${tag}`);
  const input = { tag, ...(options.verify && { verify: "true" as const }) };
  const detail = await forkd.call("snapshotInfo", input, { signal: cli.signal });
  if (cli.out.json) return cli.out.document(detail);
  const lines = describe(detail);
  const width = Math.max(...lines.map(([name]) => name.length));
  for (const [name, value] of lines) cli.out.line(`${name.padEnd(width)}  ${clean(value)}`);
}

function describe(detail: SnapshotDetail): [name: string, value: string][] {
  return [
    ["tag", detail.tag],
    ["id", detail.id],
    [
      "status",
      detail.bootable || detail.status !== "ready" ? detail.status : `${detail.status}, not bootable here`,
    ],
    ...facts("warning", detail.warning),
    [
      "created",
      `${new Date(detail.created_at_unix * 1000).toISOString()} (${formatAge(detail.created_at_unix)})`,
    ],
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
function origin(detail: SnapshotDetail): [name: string, value: string][] {
  const { branched_from, mode, pause_ms } = detail;
  return [
    ["parent", detail.parent_tag ?? "none"],
    ["depth", String(detail.chain_depth)],
    ["ancestors", detail.ancestors.join(" ") || "none"],
    ...facts("branched from", branched_from),
    ...facts("mode", mode),
    ...facts("pause", pause_ms === undefined ? undefined : `${pause_ms.toFixed(1)} ms`),
  ];
}

/** A daemon of an earlier version does not know all sizes. */
function sizeText(bytes: number | undefined): string {
  return bytes === undefined ? "?" : formatBytes(bytes);
}

/** One entry, or none if the value is not known. */
function facts(name: string, value: string | undefined): [name: string, value: string][] {
  return value === undefined ? [] : [[name, value]];
}
