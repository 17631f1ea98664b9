/**
 * npm run bench -- density [--quick | --tiny] [--n 500] [--step 100] [--ksm SECONDS] [--out DIR] [--write]
 *
 * What N live children cost their host: memory of a child by its parts, the kernel's memory for it, CPU while
 * it waits, the daemon's memory, and the list of all of them. All children have answered one eval.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { nodeTransport } from "@forkd/sdk/node";
import type { Sandbox } from "@forkd/sdk";
import { readSnapshot } from "@forkd/store";
import { factsOf } from "./support/daemon-facts.ts";
import { command, rest } from "./support/deadline.ts";
import { densityReport } from "./support/density-report.ts";
import { ksmObstacle, measureKsm } from "./support/density/ksm.ts";
import { hostCosts, hostMemory, medianMemory } from "./support/density/memory.ts";
import { addTimes, inRounds, timed } from "./support/network/measure.ts";
import { cpuSeconds } from "./support/processes.ts";
import { publish } from "./support/report.ts";
import { median, type Rows } from "./support/rows.ts";
import { commonOptions, repository, Run } from "./support/run.ts";
import { runBench, startScratchDaemon, type ScratchDaemon } from "./support/scratch-daemon.ts";
import { linkSnapshot, numpySnapshot } from "./support/snapshots.ts";
import { allOf, ask } from "./support/turns.ts";

const { values: flags } = parseArgs({
  options: {
    ...commonOptions,
    n: { type: "string" },
    step: { type: "string" },
    ksm: { type: "string" },
  },
});
const run = new Run("density", flags);
const n = Number(flags.n ?? run.pick({ tiny: 2, quick: 50, full: 500 }));
const step = Number(flags.step ?? run.pick({ tiny: 1, quick: 25, full: 100 }));
/** 0: not measured. It changes the whole host for that time, so a tiny run does without it. */
const ksmSecs = Number(flags.ksm ?? run.pick({ tiny: 0, quick: 30, full: 120 }));
const settleMs = run.pick({ tiny: 100, quick: 5_000, full: 15_000 });
const idleMs = run.pick({ tiny: 500, quick: 10_000, full: 30_000 });
const lists = run.pick({ tiny: 5, quick: 200, full: 500 });
const starts = run.pick({ tiny: 1, quick: 5, full: 15 });
const tag = "python-numpy";
const cli = join(repository, "packages/cli/dist/bundle/forkd.cjs");

/** Children in steps, all of which stay; after each step what one of all costs. */
async function fill(rows: Rows, daemon: ScratchDaemon): Promise<Sandbox[]> {
  const all: Sandbox[] = [];
  const before = hostMemory();
  while (all.length < n) {
    const count = Math.min(step, n - all.length);
    const started = performance.now();
    const forked = allOf(await daemon.forkd.fork(tag, count), count);
    const forkMs = performance.now() - started;
    await Promise.all(forked.map(ask));
    const wallMs = performance.now() - started;
    rows.add({
      case: `children ${all.length + 1} to ${all.length + count}`,
      n: count,
      wall_ms: wallMs,
      fork_ms: forkMs,
    });
    all.push(...forked);
    const measured = performance.now();
    const memory = { ...medianMemory(pidsOf(all)), ...hostCosts(before, all.length) };
    rows.add(
      { case: "memory", n: all.length, wall_ms: performance.now() - measured, ...memory },
      `${memory.private_mib.toFixed(1)} MiB private, ${memory.pss_mib.toFixed(1)} MiB PSS a child`,
    );
    await measureDaemon(rows, daemon, all.length);
  }
  return all;
}

function pidsOf(sandboxes: readonly Sandbox[]): number[] {
  return sandboxes.map(({ info }) => info.pid ?? 0);
}

/** What the daemon holds, and how long a client waits for the list of all sandboxes. */
async function measureDaemon(rows: Rows, daemon: ScratchDaemon, children: number): Promise<void> {
  const send = nodeTransport({ socket: daemon.socket });
  const times: number[] = [];
  let bytes = 0;
  for (let i = 0; i < lists; i++)
    times.push(
      await timed(async () => {
        const answer = await send({ method: "GET", path: "/v1/sandboxes", headers: {} });
        bytes = Buffer.byteLength(await answer.text());
      }),
    );
  addTimes(rows, "list", times, { children, bytes });
  const { rss_bytes, anonymous_bytes, descriptors, threads } = factsOf(daemon.pid, []);
  const facts = { rss_bytes, anonymous_bytes, descriptors, threads };
  rows.add({ case: "daemon", n: children, wall_ms: 0, ...facts }, `${(rss_bytes / 1e6).toFixed(0)} MB`);
}

/** Percent of a core that each child uses while it gets no requests. */
async function measureIdle(rows: Rows, pids: readonly number[]): Promise<void> {
  await rest(settleMs);
  const before = pids.map(cpuSeconds);
  await rest(idleMs);
  const shares = pids.map((pid, at) => ((cpuSeconds(pid) - (before[at] ?? 0)) / (idleMs / 1000)) * 100);
  const all = shares.reduce((sum, share) => sum + share, 0);
  rows.add(
    {
      case: "idle",
      n: pids.length,
      wall_ms: idleMs,
      percent_of_core: median(shares),
      percent_of_core_mean: all / pids.length,
      percent_of_core_all: all,
    },
    `${all.toFixed(1)} % of a core for all`,
  );
}

/** CPU time of `forkd ls` beside that of a Node that does nothing. */
async function measureStarts(rows: Rows, daemon: ScratchDaemon): Promise<void> {
  const env = { ...process.env, FORKD_SOCKET: daemon.socket };
  const script = '"$@" >/dev/null; times';
  const start = (args: readonly string[]) => async () => {
    const { stdout } = await command("bash", ["-c", script, "bash", process.execPath, ...args], { env });
    return [childSeconds(stdout) * 1000];
  };
  const found = await inRounds(starts, {
    "start, node": start(["-e", "0"]),
    "start, forkd ls": start([cli, "ls"]),
  });
  for (const [name, cpu] of Object.entries(found)) addTimes(rows, name, cpu);
}

/** The second line of `times` is about the programs that the shell ran: "0m0.052s 0m0.010s". */
function childSeconds(text: string): number {
  const [, line = ""] = text.trim().split("\n");
  return [...line.matchAll(/(\d+)m([\d.]+)s/g)].reduce(
    (sum, [, minutes, seconds]) => sum + Number(minutes) * 60 + Number(seconds),
    0,
  );
}

async function mergePages(rows: Rows, pids: readonly number[]): Promise<void> {
  const reason = ksmSecs === 0 ? "not measured in this run" : ksmObstacle();
  if (reason !== undefined) {
    rows.add({ case: "absent", n: 0, wall_ms: 0, contender: "ksm", reason }, reason);
    return;
  }
  const result = await measureKsm(ksmSecs);
  rows.add(
    { case: "ksm", n: pids.length, wall_ms: result.seconds * 1000, ...result },
    `${result.saved_mib.toFixed(0)} MiB saved for ${result.ksmd_cpu_seconds.toFixed(1)} s of CPU`,
  );
}

/** Compressed swap would let a host hold more idle children; nothing here switches it on. */
function swapFacts(): { swap_mib: number; zswap: string; huge_pages: string } {
  const [, kib = "0"] = /^SwapTotal:\s+(\d+)/m.exec(readFileSync("/proc/meminfo", "latin1")) ?? [];
  const parameter = "/sys/module/zswap/parameters/enabled";
  const zswap = existsSync(parameter) ? readFileSync(parameter, "latin1").trim() : "absent";
  const pages = "/sys/kernel/mm/transparent_hugepage/enabled";
  const [, huge = "absent"] = existsSync(pages)
    ? (/\[(\w+)\]/.exec(readFileSync(pages, "latin1")) ?? [])
    : [];
  return { swap_mib: Math.round(Number(kib) / 1024), zswap, huge_pages: huge };
}

await runBench(async () => {
  const snapshotDir = await numpySnapshot(run);
  const { manifest } = await readSnapshot(snapshotDir, tag);
  const { accelerator, memory_mib: memoryMib } = manifest.machine;
  const version = await command("qemu-system-x86_64", ["--version"]);
  const qemu = /version [\d.]+/.exec(version.stdout)?.[0].replace("version", "QEMU") ?? "QEMU";
  const swap = swapFacts();
  const rows = run.rows({ accelerator, qemu, memory_mib: memoryMib, step, ...swap });
  await using daemon = await startScratchDaemon(run);
  await linkSnapshot(snapshotDir, daemon.dir, tag);
  // The first fork of a snapshot verifies its files, and its child brings the files into memory.
  const [first] = allOf(await daemon.forkd.fork(tag, 1), 1);
  if (first) await ask(first);
  await first?.kill();
  await measureDaemon(rows, daemon, 0);
  const all = await fill(rows, daemon);
  const evals = await timed(() => Promise.all(all.map(ask)));
  rows.add({ case: "one eval in each", n: all.length, wall_ms: evals });
  await measureStarts(rows, daemon);
  await measureIdle(rows, pidsOf(all));
  await mergePages(rows, pidsOf(all));
  const zswap = swap.zswap === "absent" ? "no zswap" : `zswap ${swap.zswap === "Y" ? "on" : "off"}`;
  const facts = `guests of ${memoryMib} MiB with numpy, ${accelerator}, ${qemu}, swap ${swap.swap_mib} MiB, ${zswap}, huge pages "${swap.huge_pages}", ${rows.load()}${run.remark}`;
  publish(run, densityReport(rows.all, facts), rows);
  await daemon.forkd.sandboxes.killAll();
});
