/**
 * npm run bench -- load [--quick | --tiny] [--clients 64] [--seconds 30] [--out DIR] [--write]
 *
 * Many clients at once on one daemon, in several mixes of calls, for some seconds each: which answers they
 * got, how long a command took (p50, p99), and how long `/version` took, a call that needs nothing but the
 * daemon and so shows whether its event loop was blocked.
 */
import { parseArgs } from "node:util";
import { AppError, errorCodes } from "@forkd/contract";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { rest } from "./support/deadline.ts";
import { lossesFirst, markdownTable, number, publish, targetTable, type Target } from "./support/report.ts";
import { cpuSeconds } from "./support/processes.ts";
import type { Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon, type ScratchDaemon } from "./support/scratch-daemon.ts";
import { bakedMemoryMib, buildBase, buildTiny } from "./support/snapshots.ts";
import { allOf } from "./support/turns.ts";

const { values: flags } = parseArgs({
  options: { ...commonOptions, clients: { type: "string" }, seconds: { type: "string" } },
});
const bench = new Run("load", flags);
const clients = Number(flags.clients ?? bench.pick({ tiny: 4, quick: 64, full: 64 }));
const seconds = Number(flags.seconds ?? bench.pick({ tiny: 1, quick: 6, full: 30 }));
const guests = bench.pick({ tiny: 2, quick: 12, full: 12 });
const probeEveryMs = 25;
/** Answers that a loaded daemon may give: it has no room at the moment. */
const capacity = new Set(["capacity_exhausted", "disk_full"]);

type Place = { forkd: Forkd; sandboxes: readonly Sandbox[]; python: Sandbox; tag: string };
type Call = (place: Place, sandbox: Sandbox) => Promise<unknown>;
type Mix = { name: string; clients: number; calls: readonly (readonly [name: string, share: number])[] };

const calls: Record<string, Call> = {
  exec: (_place, sandbox) => sandbox.commands.run(["true"], { check: true }),
  eval: ({ python }) => python.eval("sum(range(10))"),
  write: (_place, sandbox) => sandbox.files.write("/root/load", "x".repeat(10_000)),
  read: (_place, sandbox) => sandbox.files.read("/etc/passwd"),
  list: ({ forkd }) => forkd.sandboxes.list().all(),
  info: ({ forkd }, sandbox) => forkd.sandboxes.get(sandbox.id),
  ping: (_place, sandbox) => sandbox.ping(),
  images: ({ forkd }) => forkd.snapshots.list().all(),
  async fork({ forkd, tag }) {
    await using child = await forkd.create(tag);
    await child.commands.run(["true"], { check: true });
  },
  async branch({ forkd }, sandbox) {
    const { tag } = await sandbox.branch();
    await forkd.snapshots.remove(tag);
  },
  /** disconnects in the middle of a stream */
  async leave(_place, sandbox) {
    const handle = await sandbox.commands.start(["yes"]);
    let seen = 0;
    for await (const event of handle) if (event.type === "stdout" && ++seen === 3) break;
  },
  /** reads far slower than the guest writes */
  async slow(_place, sandbox) {
    const handle = await sandbox.commands.start(["yes"]);
    let seen = 0;
    for await (const event of handle) {
      if (event.type !== "stdout") continue;
      await rest(200);
      if (++seen === 5) break;
    }
  },
};

const mixes: readonly Mix[] = [
  { name: "one client", clients: 1, calls: [["exec", 1]] },
  { name: "exec only", clients, calls: [["exec", 1]] },
  {
    name: "calls",
    clients,
    calls: [
      ["exec", 40],
      ["eval", 10],
      ["write", 10],
      ["read", 10],
      ["list", 10],
      ["info", 5],
      ["images", 5],
      ["ping", 10],
    ],
  },
  {
    name: "everything",
    clients,
    calls: [
      ["exec", 40],
      ["eval", 10],
      ["write", 8],
      ["read", 8],
      ["list", 8],
      ["info", 5],
      ["images", 3],
      ["ping", 8],
      ["fork", 4],
      ["branch", 1],
      ["leave", 3],
      ["slow", 2],
    ],
  },
];

function pick(mix: Mix): string {
  let at = Math.random() * mix.calls.reduce((sum, [, share]) => sum + share, 0);
  for (const [name, share] of mix.calls) if ((at -= share) < 0) return name;
  return mix.calls[0]?.[0] ?? "exec";
}

function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

type Outcome = {
  mix: Mix;
  total: number;
  answers: Map<string, number>;
  /** 5xx that are not about capacity */
  faults: string[];
  exec: number[];
  probe: number[];
  daemonCpu: number;
  elapsed: number;
};

async function run(mix: Mix, place: Place, daemon: ScratchDaemon): Promise<Outcome> {
  const answers = new Map<string, number>();
  const faults: string[] = [];
  const exec: number[] = [];
  const probe: number[] = [];
  const count = (name: string) => answers.set(name, (answers.get(name) ?? 0) + 1);
  const until = performance.now() + seconds * 1000;
  const started = performance.now();
  const cpuBefore = cpuSeconds(daemon.pid);
  let total = 0;
  const client = async (index: number): Promise<void> => {
    // One client makes every call once, so that none is missing in a short run.
    const first = index === 0 ? mix.calls.map(([name]) => name) : [];
    for (let turn = index; first.length > 0 || performance.now() < until; turn++) {
      const name = first.shift() ?? pick(mix);
      const sandbox = place.sandboxes[turn % place.sandboxes.length];
      if (!sandbox) throw new Error("There is no sandbox");
      const begun = performance.now();
      total++;
      try {
        await calls[name]?.(place, sandbox);
        count("ok");
        if (name === "exec") exec.push(performance.now() - begun);
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        count(error.code);
        if (errorCodes[error.code].status >= 500 && !capacity.has(error.code)) {
          faults.push(`${name}: ${error.code}: ${error.message.slice(0, 200)}`);
        }
      }
    }
  };
  const probing = async (): Promise<void> => {
    while (performance.now() < until) {
      const begun = performance.now();
      await place.forkd.version();
      probe.push(performance.now() - begun);
      await rest(probeEveryMs);
    }
  };
  await Promise.all([probing(), ...Array.from({ length: mix.clients }, (_, index) => client(index))]);
  return {
    mix,
    total,
    answers,
    faults,
    exec: exec.sort((a, b) => a - b),
    probe: probe.sort((a, b) => a - b),
    daemonCpu: cpuSeconds(daemon.pid) - cpuBefore,
    elapsed: (performance.now() - started) / 1000,
  };
}

function record(outcome: Outcome, rows: Rows): void {
  const { mix, total, exec, probe, faults } = outcome;
  rows.add(
    {
      case: mix.name,
      n: mix.clients,
      wall_ms: percentile(exec, 0.5),
      exec_p99_ms: percentile(exec, 0.99),
      exec_count: exec.length,
      exec_max_ms: exec.at(-1),
      probe_p50_ms: percentile(probe, 0.5),
      probe_p99_ms: percentile(probe, 0.99),
      calls: total,
      seconds: outcome.elapsed,
      daemon_cpu_seconds: outcome.daemonCpu,
      answers: Object.fromEntries(outcome.answers),
      faults: faults.slice(0, 10),
    },
    `p99 ${percentile(exec, 0.99).toFixed(1)}, ${total} calls, ${JSON.stringify(Object.fromEntries(outcome.answers))}`,
  );
}

function lineOf({ mix, total, exec, probe, elapsed, daemonCpu, answers }: Outcome): string[] {
  const [p50, p99] = [percentile(exec, 0.5), percentile(exec, 0.99)];
  const others = [...answers].filter(([name]) => name !== "ok").map(([name, times]) => `${name} ${times}`);
  return [
    mix.name,
    String(mix.clients),
    number(total / elapsed, 0),
    number(p50),
    number(p99),
    number(p99 / p50, 2),
    number(percentile(probe, 0.5)),
    number(percentile(probe, 0.99)),
    `${number((daemonCpu / elapsed) * 100, 0)} %`,
    others.join(", ") || "none",
  ];
}

await runBench(async () => {
  const rows = bench.rows({ clients, seconds, guests });
  await using daemon = await startScratchDaemon(bench, { FORKD_MAX_SANDBOXES: "40" });
  const { forkd } = daemon;
  const { accelerator } = await forkd.status();
  const tag = await buildTiny(bench, daemon);
  const memoryMib = bench.pick({ tiny: bakedMemoryMib, quick: 256, full: 256 });
  const python = await forkd.create(await buildBase(bench, daemon, memoryMib));
  const sandboxes = allOf(await forkd.fork(tag, guests), guests);
  const place = { forkd, sandboxes, python, tag };
  const outcomes: Outcome[] = [];
  for (const mix of mixes) {
    const outcome = await run(mix, place, daemon);
    record(outcome, rows);
    outcomes.push(outcome);
  }
  const alive = await Promise.all(sandboxes.map((each) => each.commands.run(["true"], { check: true })));
  const targets: Target[] = outcomes.flatMap(({ mix, exec, faults }): Target[] => [
    {
      figure: `${mix.name}: p99 / p50 of exec`,
      measured: percentile(exec, 0.99) / percentile(exec, 0.5),
      limit: 5,
    },
    {
      figure: `${mix.name}: 5xx that are not about capacity`,
      measured: faults.length,
      limit: 0,
      detail: faults[0] ?? "",
    },
  ]);
  const head = [
    "mix",
    "clients",
    "calls/s",
    "exec p50",
    "p99",
    "ratio",
    "/version p50",
    "p99",
    "daemon CPU",
    "other answers",
  ];
  const text = [
    `${clients} clients on ${guests} guests of 96 MiB and one with Python, ${seconds} s each mix (${accelerator}, ${rows.load()}${bench.remark}). Times in ms as the client sees them; the clients run on the same machine.`,
    targetTable(lossesFirst(targets)),
    markdownTable(head, outcomes.map(lineOf)),
    `All ${alive.length} guests answered afterwards.`,
  ].join("\n\n");
  publish(bench, text, rows);
});
