import type { SnapshotInfo } from "@forkd/contract";
import { Option, type Command } from "commander";
import { wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { formatAge, formatBytes, type Column } from "../terminal/table.ts";

type Options = { state?: SnapshotInfo["status"]; parent?: string; fromSandbox?: string; limit?: number };

const columns: readonly Column<SnapshotInfo>[] = [
  { title: "TAG", value: ({ tag }) => tag },
  { title: "PARENT", value: ({ parent_tag }) => parent_tag ?? "-" },
  { title: "MEMORY", value: ({ memory_mib }) => `${memory_mib} MiB`, align: "right", drop: 3 },
  { title: "VCPUS", value: ({ vcpus }) => String(vcpus), align: "right", drop: 1 },
  { title: "SIZE", value: ({ total_bytes: size }) => sizeText(size), align: "right" },
  {
    title: "OWN",
    value: ({ own_bytes: own, physical_bytes: files }) => sizeText(own ?? files),
    align: "right",
  },
  { title: "LANGUAGES", value: ({ languages }) => languages.join(",") || "-", drop: 2 },
  { title: "CREATED", value: ({ created_at_unix }) => formatAge(created_at_unix) },
  { title: "STATUS", value: describeStatus },
];

/** A daemon of an earlier version does not know all sizes. */
function sizeText(bytes: number | undefined): string {
  return bytes === undefined ? "-" : formatBytes(bytes);
}

function describeStatus({ status, bootable, warning }: SnapshotInfo): string {
  if (status !== "ready") return warning === undefined ? status : `${status} (${warning})`;
  return bootable ? status : (warning ?? "not bootable here");
}

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .addOption(new Option("--state <state>", "List only this state").choices(["writing", "ready", "failed"]))
    .option("--parent <tag>", "List only direct layers over this snapshot")
    .option("--from-sandbox <id>", "List only branches of this sandbox or workspace")
    .option("--limit <count>", "List at most this many, by tag", wholeNumber(1))
    .addHelpText(
      "after",
      examples(
        "forkd images",
        "forkd images --parent python",
        "forkd images -q",
        "forkd images --json | jq -r '.[].tag'",
      ),
    )
    .action(toAction(images));
}

async function images(cli: Cli, { state, parent, fromSandbox, limit }: Options): Promise<void> {
  const forkd = await cli.daemon();
  const [sandbox] = fromSandbox === undefined ? [] : await cli.sandboxIds(forkd, [fromSandbox]);
  const filter = { state, parent, branched_from: sandbox, limit, signal: cli.signal };
  const snapshots = await forkd.snapshots.list(filter);
  cli.out.list(snapshots, { columns, name: ({ tag }) => tag });
  if (snapshots.length === 0) cli.out.note("No snapshots. Run `forkd build python-numpy` to build one.");
}
