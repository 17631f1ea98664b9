import type { SnapshotInfo } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import { Option, type Command } from "commander";
import { wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import { compareNames } from "../views/order.ts";
import { formatAge, formatBytes, type Column } from "../terminal/table.ts";

type SortKey = "tag" | "time" | "size";
type Options = {
  state?: SnapshotInfo["status"];
  parent?: string;
  fromSandbox?: string;
  sort: SortKey;
  limit?: number;
};

/** Tags in natural order; time and size with the newest and the largest first. */
const orders: Record<SortKey, (a: SnapshotInfo, b: SnapshotInfo) => number> = {
  tag: (a, b) => compareNames(a.tag, b.tag),
  time: (a, b) => b.created_at_unix - a.created_at_unix,
  size: (a, b) => (b.total_bytes ?? b.physical_bytes) - (a.total_bytes ?? a.physical_bytes),
};

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

/** Shown if a snapshot has one. */
const imageColumn: Column<SnapshotInfo> = { title: "IMAGE", value: ({ image }) => image ?? "-", drop: 0 };

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
    .addOption(
      new Option("--sort <key>", "Sort by tag, newest or largest first")
        .choices(["tag", "time", "size"])
        .default("tag"),
    )
    .option("--limit <count>", "List at most this many", wholeNumber(1))
    .addHelpText(
      "after",
      examples(
        "forkd images",
        "forkd images --parent python",
        "forkd images --sort time --limit 5",
        "forkd images -q",
        "forkd images --json | jq -r '.[].tag'",
      ),
    )
    .action(toAction(images));
}

async function images(cli: Cli, { state, parent, fromSandbox, sort, limit }: Options): Promise<void> {
  const forkd = await cli.daemon();
  const [sandbox] = fromSandbox === undefined ? [] : await cli.sandboxIds(forkd, [fromSandbox]);
  // The daemon applies a limit by tag, so another order needs all of them.
  const asked = sort === "tag" ? limit : undefined;
  const filter = { state, parent, branchedFrom: sandbox, limit: asked };
  const all = await forkd.snapshots.list(filter, { signal: cli.signal }).all();
  const found = wireOf<SnapshotInfo[]>(all);
  const snapshots = found.toSorted((a, b) => orders[sort](a, b) || orders.tag(a, b)).slice(0, limit);
  const hasImages = snapshots.some(({ image }) => image !== undefined);
  const shown = hasImages ? columns.toSpliced(-2, 0, imageColumn) : columns;
  cli.out.list(snapshots, { columns: shown, name: ({ tag }) => tag });
  if (snapshots.length === 0) cli.out.note("No snapshots. Run `forkd build python-numpy` to build one.");
}
