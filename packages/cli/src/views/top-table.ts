/** Two measurements of the sandboxes → the rows of `top`. */
import { plural } from "@forkd/contract/wire";
import type { PoolInfo, SandboxStats, Stats } from "@forkd/contract";
import { formatBytes, formatSeconds, type Column } from "../terminal/table.ts";

/** `cpu_percent` of one CPU since the last measurement; null if there is none. */
export type TopRow = SandboxStats & { cpu_percent: number | null };
export type SortKey = "cpu" | "memory" | "disk" | "uptime" | "id" | "tag";
export const sortKeys: readonly SortKey[] = ["cpu", "memory", "disk", "uptime", "id", "tag"];

const orders: Record<SortKey, (a: TopRow, b: TopRow) => number> = {
  cpu: (a, b) => (b.cpu_percent ?? -1) - (a.cpu_percent ?? -1),
  memory: (a, b) => (b.pss_bytes ?? 0) - (a.pss_bytes ?? 0),
  disk: (a, b) => b.disk_bytes - a.disk_bytes,
  uptime: (a, b) => b.uptime_secs - a.uptime_secs,
  id: (a, b) => (a.id < b.id ? -1 : 1),
  tag: (a, b) => (a.snapshot_tag === b.snapshot_tag ? 0 : a.snapshot_tag < b.snapshot_tag ? -1 : 1),
};

export function rowsOf(now: Stats, before: Stats | undefined, sort: SortKey): TopRow[] {
  const earlier = new Map(before?.sandboxes.map((each) => [each.id, each]));
  return now.sandboxes
    .map((each) => ({ ...each, cpu_percent: cpuPercent(each, earlier.get(each.id)) }))
    .sort((a, b) => orders[sort](a, b) || orders.id(a, b));
}

/** A new machine of the sandbox, with another pid, has no earlier measurement. */
function cpuPercent(now: SandboxStats, before: SandboxStats | undefined): number | null {
  if (now.cpu_seconds === undefined || before?.cpu_seconds === undefined || now.pid !== before.pid)
    return null;
  const seconds = now.sampled_at_unix - before.sampled_at_unix;
  if (seconds <= 0) return null;
  return Math.max(0, Math.round(((now.cpu_seconds - before.cpu_seconds) / seconds) * 1000) / 10);
}

const bytesOf = (bytes: number | undefined) => (bytes === undefined ? "-" : formatBytes(bytes));

export const topColumns: readonly Column<TopRow>[] = [
  { title: "ID", value: ({ id }) => id, id: true },
  { title: "TAG", value: ({ snapshot_tag }) => snapshot_tag },
  { title: "STATE", value: ({ state }) => state, drop: 4 },
  { title: "CPU %", value: ({ cpu_percent }) => cpu_percent?.toFixed(1) ?? "-", align: "right" },
  { title: "PRIVATE", value: ({ private_bytes }) => bytesOf(private_bytes), align: "right", drop: 5 },
  { title: "SHARED", value: ({ shared_bytes }) => bytesOf(shared_bytes), align: "right", drop: 2 },
  { title: "PSS", value: ({ pss_bytes }) => bytesOf(pss_bytes), align: "right" },
  { title: "DISK", value: ({ disk_bytes }) => formatBytes(disk_bytes), align: "right" },
  { title: "UPTIME", value: ({ uptime_secs }) => formatSeconds(uptime_secs), align: "right", drop: 3 },
  { title: "WORKSPACE", value: ({ workspace }) => workspace ?? "-", drop: 1 },
];

/** `pool`: children that wait ready; they are not sandboxes and have no row. */
export function totalsOf(rows: readonly TopRow[], pool?: PoolInfo): string {
  const sum = (value: (row: TopRow) => number | null | undefined) =>
    rows.reduce((total, row) => total + (value(row) ?? 0), 0);
  const ready = pool?.snapshots.reduce((total, each) => total + each.ready, 0) ?? 0;
  const running = rows.filter(({ state }) => state === "running").length;
  return [
    `${plural(rows.length, "sandbox")}, ${running} running`,
    `CPU ${sum(({ cpu_percent }) => cpu_percent).toFixed(1)} %`,
    `memory ${formatBytes(sum(({ pss_bytes }) => pss_bytes))}`,
    `disk ${formatBytes(sum(({ disk_bytes }) => disk_bytes))}`,
    ...(pool === undefined || ready === 0 ? [] : [`ready ${ready}, about ${pool.used_mib} MiB`]),
  ].join("   ");
}
