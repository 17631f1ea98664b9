import type { SnapshotInfo } from "@forkd/contract";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { examples } from "../help.ts";
import { formatAge, formatBytes, type Column } from "../table.ts";

const columns: readonly Column<SnapshotInfo>[] = [
  { title: "TAG", value: ({ tag }) => tag },
  { title: "PARENT", value: ({ parent_tag }) => parent_tag ?? "-" },
  { title: "MEMORY", value: ({ memory_mib }) => `${memory_mib} MiB`, align: "right" },
  { title: "VCPUS", value: ({ vcpus }) => String(vcpus), align: "right" },
  { title: "ON DISK", value: ({ physical_bytes }) => formatBytes(physical_bytes), align: "right" },
  { title: "LANGUAGES", value: ({ languages }) => languages.join(",") || "-" },
  { title: "CREATED", value: ({ created_at_unix }) => formatAge(created_at_unix) },
  { title: "STATUS", value: describeStatus },
];

function describeStatus({ status, bootable, warning }: SnapshotInfo): string {
  if (status !== "ready") return warning === undefined ? status : `${status} (${warning})`;
  return bootable ? status : (warning ?? "not bootable here");
}

export function define(command: Command, toAction: ToAction): void {
  command
    .addHelpText("after", examples("forkd images", "forkd images --json | jq -r '.[].tag'"))
    .action(toAction(images));
}

async function images(cli: Cli): Promise<void> {
  const forkd = await cli.daemon();
  const snapshots = await forkd.call("listSnapshots", {}, { signal: cli.signal });
  cli.out.rows(columns, snapshots);
  if (snapshots.length === 0) cli.out.note("No snapshots yet; `forkd build python-numpy` makes one.");
}
