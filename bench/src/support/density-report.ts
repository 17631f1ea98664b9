/** Rows of the benchmark of density → its report. */
import { lossesFirst, markdownTable, number, targetTable, type Target } from "./report.ts";
import type { Row } from "./row-shapes.ts";

const mb = 1e6;

export function densityReport(rows: readonly Row[], facts: string): string {
  const named = (name: string) => rows.filter((row) => row.case === name);
  const last = (name: string) => named(name).at(-1);
  const figure = (row: Row | undefined, field: string) => Number(row?.[field] ?? Number.NaN);
  const memory = named("memory");
  const most = memory.at(-1)?.n ?? 0;
  const start = (name: string) => figure(last(`start, ${name}`), "wall_ms");
  const daemon = figure(last("daemon"), "rss_bytes") / mb;
  const targets: Target[] = [
    {
      figure: `daemon RSS with ${most} children`,
      measured: daemon,
      limit: 150,
      unit: "MB",
      detail: `${number(figure(named("daemon")[0], "rss_bytes") / mb, 0)} MB without children`,
    },
    {
      figure: `list of ${most} sandboxes, median`,
      measured: figure(last("list"), "wall_ms"),
      limit: 20,
      unit: "ms",
      detail: `p99 ${number(figure(last("list"), "p99_ms"))} ms`,
    },
    {
      figure: `CPU of \`forkd ls\` / \`node -e 0\`, ${most} sandboxes`,
      measured: start("forkd ls") / start("node"),
      limit: 2,
      detail: `${number(start("forkd ls"), 0)} / ${number(start("node"), 0)} ms`,
    },
  ];
  const idle = last("idle");
  const evals = last("one eval in each");
  return [
    `Live children of one snapshot, all of which have answered one eval (${facts}).`,
    targetTable(lossesFirst(targets)),
    partTable(memory),
    `The first five parts are private to a child and add up to it. Host and kernel: what the whole host has less, by \`/proc/meminfo\`, so that other programs disturb it.`,
    stepTable(rows),
    `Idle: ${number(figure(idle, "percent_of_core_mean"), 3)} % of a core a child, mean, ${number(figure(idle, "percent_of_core_all"))} % for all ${most}. One eval in each: ${number(figure(evals, "wall_ms"), 0)} ms. ${ksmText(rows)}`,
  ].join("\n\n");
}

const parts: readonly (readonly [title: string, field: string])[] = [
  ["guest memory that diverged", "guest_mib"],
  ["translated code", "jit_mib"],
  ["firmware and other memory of the machine", "rom_mib"],
  ["heap and stacks of QEMU", "heap_mib"],
  ["data of QEMU and its libraries", "files_mib"],
  ["private, all of these", "private_mib"],
  ["of that in huge pages", "huge_mib"],
  ["PSS", "pss_mib"],
  ["RSS", "rss_mib"],
  ["page tables of the process", "page_tables_mib"],
  ["host: memory that is no longer available", "host_mib"],
  ["kernel: slab", "slab_mib"],
  ["kernel: stacks", "kernel_stack_mib"],
  ["kernel: page tables", "host_page_tables_mib"],
];

function partTable(memory: readonly Row[]): string {
  return markdownTable(
    ["MiB a child, medians", ...memory.map(({ n }) => `${n} children`)],
    parts.map(([title, field]) => [title, ...memory.map((row) => number(Number(row[field]), 2))]),
  );
}

function stepTable(rows: readonly Row[]): string {
  const of = (name: string, n: unknown) =>
    rows.find((row) => row.case === name && (name === "list" ? row["children"] : row.n) === n);
  const counts = rows.filter((row) => row.case === "daemon").map(({ n }) => n);
  const forks = rows.filter((row) => row.case.startsWith("children "));
  return markdownTable(
    [
      "children",
      "forked and answered, ms each",
      "list p50, ms",
      "list p99, ms",
      "daemon RSS, MB",
      "anonymous, MB",
    ],
    counts.map((n, at) => {
      const [list, daemon, fork] = [of("list", n), of("daemon", n), forks[at - 1]];
      return [
        String(n),
        number(fork === undefined ? Number.NaN : fork.wall_ms / fork.n, 0),
        number(list?.wall_ms ?? Number.NaN, 1),
        number(Number(list?.["p99_ms"]), 1),
        number(Number(daemon?.["rss_bytes"]) / mb, 0),
        number(Number(daemon?.["anonymous_bytes"]) / mb, 0),
      ];
    }),
  );
}

function ksmText(rows: readonly Row[]): string {
  const row = rows.find((each) => each.case === "ksm");
  if (row === undefined) {
    const reason = rows.find((each) => each["contender"] === "ksm")?.["reason"];
    return `KSM: ${typeof reason === "string" ? reason : "not measured"}.`;
  }
  const saved = Number(row["saved_mib"]);
  return `KSM, ${number(Number(row["seconds"]), 0)} s: saved ${number(saved, 0)} MiB, ${number(saved / row.n, 2)} MiB a child, for ${number(Number(row["ksmd_cpu_seconds"]))} s of CPU and ${number(Number(row["full_scans"]), 0)} full scans.`;
}
