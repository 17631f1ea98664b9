import type { SnapshotDetail } from "@forkd/contract";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";
import { clean, formatAge, formatBytes } from "../table.ts";

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<tag>", "snapshot")
    .option("--verify", "read every file again and compare its digest")
    .addHelpText("after", examples("forkd info python-numpy", "forkd info python-numpy --verify"))
    .action(toAction(info));
}

async function info(cli: Cli, options: { verify?: true }, tag: string): Promise<void> {
  const forkd = await cli.daemon();
  using _progress = cli.progress(`Reading ${tag}`);
  const input = { tag, ...(options.verify && { verify: "true" as const }) };
  const detail = await forkd.call("snapshotInfo", input, { signal: cli.signal });
  if (cli.out.json) return cli.out.document(detail);
  const facts = describe(detail);
  const width = Math.max(...facts.map(([name]) => name.length));
  for (const [name, value] of facts) cli.out.line(`${name.padEnd(width)}  ${clean(value)}`);
}

function describe(detail: SnapshotDetail): [name: string, value: string][] {
  return [
    ["tag", detail.tag],
    ["status", detail.bootable ? detail.status : `${detail.status}, not bootable here`],
    ...(detail.warning === undefined ? [] : [["warning", detail.warning] satisfies [string, string]]),
    [
      "created",
      `${new Date(detail.created_at_unix * 1000).toISOString()} (${formatAge(detail.created_at_unix)})`,
    ],
    ["recipe", detail.recipe ?? "-"],
    ["languages", detail.languages.join(", ") || "-"],
    ["machine", `${detail.vcpus} vCPU, ${detail.memory_mib} MiB, ${detail.accelerator}`],
    ["memory", `${formatBytes(detail.memory_physical_bytes)} of ${formatBytes(detail.memory_logical_bytes)}`],
    ["devices", formatBytes(detail.vmstate_bytes)],
    ["disk", formatBytes(detail.disk_bytes)],
    ["rootfs", formatBytes(detail.rootfs_bytes)],
    ["own bytes", formatBytes(detail.physical_bytes)],
    ["directory", detail.dir],
    ["sandboxes", detail.sandboxes.join(" ") || "none"],
  ];
}
