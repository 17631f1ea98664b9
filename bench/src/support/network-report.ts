/** Rows of the network benchmark → its report. */
import { agentWays, ways } from "./network/transfers.ts";
import { lossesFirst, markdownTable, number, targetTable, type Target } from "./report.ts";
import type { Row } from "./row-shapes.ts";
import { median } from "./rows.ts";

type NetworkFacts = {
  /** of host and run */
  facts: string;
  /** children of one fork */
  forked: number;
  /** slots that exist at once */
  slots: number;
  /** of one transfer */
  bytes: number;
};

const mb = 1e6;

class Figures {
  readonly rows: readonly Row[];

  constructor(rows: readonly Row[]) {
    this.rows = rows;
  }

  /** Median of a figure over the rows of one case; NaN without rows. */
  of(name: string, figure = "wall_ms"): number {
    return median(this.rows.filter((row) => row.case === name).map((row) => Number(row[figure])));
  }

  count(name: string): number {
    return this.rows.filter((row) => row.case === name).reduce((sum, { n }) => sum + n, 0);
  }

  /** CPU seconds of a process per wall second. */
  share(name: string, who: string): number {
    const shares = this.rows
      .filter((row) => row.case === name)
      .map((row) => ((row["cpu_seconds"] as Record<string, number>)[who] ?? 0) / (row.wall_ms / 1000));
    return median(shares);
  }

  /** Milliseconds of CPU per 10^6 bytes. */
  effort(name: string, who: string): number {
    return (this.share(name, who) * 1000) / this.of(name, "mb_per_s");
  }
}

function ratio(figure: string, [above, below]: readonly [number, number], limit: number): Target {
  return { figure, measured: above / below, limit, detail: `${number(above)} / ${number(below)} ms` };
}

function targetsOf(figures: Figures, { forked }: NetworkFacts): Target[] {
  const of = (name: string, figure?: string) => figures.of(name, figure);
  const slot = (figure?: string) => of("start, jail and network", figure) - of("start, no jail", figure);
  return [
    ratio(
      `fork ${forked}, jail and network / neither`,
      [of("fork, jail and network"), of("fork, neither")],
      1.1,
    ),
    ratio("exec, jail and network / neither", [of("exec, jail and network"), of("exec, neither")], 1.05),
    {
      figure: "forkd-launch adds to a start",
      measured: slot(),
      limit: 2,
      unit: "ms",
      detail: `CPU ${number(slot("cpu_ms"))} ms`,
    },
    { figure: "add() of the proxy", measured: of("slots"), limit: 2, unit: "ms" },
    { figure: "slab of the kernel per slot", measured: of("slots", "slab_kib"), limit: 400, unit: "KiB" },
    ...ways.map((way) => ({
      figure: `transfer, ${way}`,
      measured: of(way, "mb_per_s"),
      limit: 90,
      atLeast: true,
      unit: "MB/s",
    })),
    ...ways.map((way) =>
      ratio(`/version p99, ${way} / idle`, [of(way, "version_p99_ms"), of("idle", "version_p99_ms")], 2),
    ),
    ...["direct", "agent channel"].map((way) => ({
      figure: `a request to a port adds, ${way}`,
      measured: of(`port, ${way}`) - of("port, within the namespace"),
      limit: 3,
      unit: "ms",
    })),
    {
      figure: "decide() with 10,000 rules",
      measured: of("decide") * 1000,
      limit: 100,
      unit: "µs",
    },
    ...["raw", "http"].map((way) =>
      ratio(
        `connection, ${way}, 10,000 rules / 1 rule`,
        [of(`exchange, ${way}, many rules`), of(`exchange, ${way}`)],
        1.1,
      ),
    ),
  ];
}

function transferTable(figures: Figures): string[] {
  const lines = [...ways, ...agentWays].map((way) => [
    way,
    number(figures.of(way, "mb_per_s"), 0),
    ...["proxy", "vmm", "server", "daemon"].map((who) => number(figures.effort(way, who))),
    number(figures.of(way, "version_p50_ms")),
    number(figures.of(way, "version_p99_ms")),
  ]);
  const idle = ["idle", "–", "–", "–", "–", "–"];
  const version = ["version_p50_ms", "version_p99_ms"].map((figure) => number(figures.of("idle", figure)));
  return [
    "Transfers, and answers of `/version` meanwhile (ms), asked every 10 ms by a thread of the benchmark. Raw: bytes without a protocol that the proxy knows, which is how it also passes TLS on. CPU in ms per MB, that of the daemon with the answers to the probe. The agent channel carries files.",
    markdownTable(
      ["way", "MB/s", "CPU: proxy", "VMM", "server", "daemon", "/version p50", "p99"],
      [[...idle, ...version], ...lines],
    ),
  ];
}

function timesTable(figures: Figures): string[] {
  const kinds = ["exec", "start", "port", "exchange", "look-up", "decide"];
  const found = new Set(
    figures.rows.map((row) => row.case).filter((name) => kinds.some((kind) => name.startsWith(kind))),
  );
  const lines = [...found].map((name) => [
    name,
    String(figures.count(name)),
    number(figures.of(name), 3),
    number(figures.of(name, "p99_ms"), 3),
  ]);
  return [
    "Many small things, ms. Exec: a command as the client sees it. Start: until a program runs that stands for the VMM. Port: a request to a server in the guest, on a connection that the client keeps. Exchange: a new connection, a few bytes each way, as the guest measures it. Look-up: `getaddrinfo` in the guest. Decide: means of 1000.",
    markdownTable(["", "n", "median", "p99"], lines),
  ];
}

export function networkReport(rows: readonly Row[], facts: NetworkFacts): string {
  const figures = new Figures(rows);
  const has = (name: string) => rows.some((row) => row.case === name);
  const kib = (figure: string) => number(figures.of("slots", figure), 0);
  const fork = ["jail and network", "neither"].map(
    (name) =>
      `${name} ${number(figures.of(`fork, ${name}`), 0)} ms (answer of fork() ${number(figures.of(`fork, ${name}`, "fork_ms"), 0)} ms)`,
  );
  const absent = rows.filter((row) => row.case === "absent");
  const notes = [
    ...(has("fork, neither") ? [`Fork of ${facts.forked} until all have answered: ${fork.join(", ")}.`] : []),
    ...(has("slots")
      ? [
          `Memory per slot, ${facts.slots} at once: slab ${kib("slab_kib")} KiB (of which unreclaimable ${kib("unreclaimable_kib")}), per-CPU ${kib("percpu_kib")}, stacks and page tables ${kib("other_kib")}, the proxy ${kib("proxy_kib")}.`,
        ]
      : []),
    ...(has("decide")
      ? [`Compiling 10,000 rules: ${number(figures.of("decide", "compile_ms"), 0)} ms.`]
      : []),
    ...(has("set rules")
      ? [`Setting them in a running sandbox: ${number(figures.of("set rules"), 0)} ms.`]
      : []),
    ...absent.map((row) => `Not measured: ${String(row["contender"])} (${String(row["reason"])}).`),
  ];
  return [
    `Jail and network beside neither (\`jail\` off), transfers of ${facts.bytes / mb} MB to and from a server in another namespace of this host (${facts.facts}).`,
    targetTable(lossesFirst(targetsOf(figures, facts))),
    notes.join(" "),
    ...(has("idle") ? transferTable(figures) : []),
    ...timesTable(figures),
  ].join("\n\n");
}
