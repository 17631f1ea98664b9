/**
 * npm run bench -- network [--quick | --tiny] [--rounds 5] [--n 100] [--mb 1000]
 *   [--parts forks,slots,transfers,ports,connections] [--out DIR] [--write]
 *
 * What jail and network cost: forks and commands beside those of a daemon that uses neither, the slot of a
 * machine, bytes to and from a server outside, requests to a server in a guest, rules, names and connections.
 * The server outside is in a network namespace of this host, which only root can make.
 */
import { parseArgs } from "node:util";
import { readSnapshot } from "@forkd/store";
import { command } from "./support/deadline.ts";
import { networkReport } from "./support/network-report.ts";
import { measureConnections, measureDecisions } from "./support/network/connections.ts";
import { measureExecs, measureForks, warmUp } from "./support/network/forks.ts";
import { openOutside } from "./support/network/outside.ts";
import { measurePorts } from "./support/network/ports.ts";
import { measureSlots, obstacle } from "./support/network/slots.ts";
import { measureTransfers } from "./support/network/transfers.ts";
import { publish } from "./support/report.ts";
import type { Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { linkSnapshot, numpySnapshot } from "./support/snapshots.ts";

const partNames = ["forks", "slots", "transfers", "ports", "connections"] as const;
const { values: flags } = parseArgs({
  options: {
    ...commonOptions,
    rounds: { type: "string" },
    n: { type: "string" },
    mb: { type: "string" },
    parts: { type: "string", default: partNames.join(",") },
  },
});
const run = new Run("network", flags);
const parts = flags.parts.split(",");
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 2, full: 5 }));
const forked = Number(flags.n ?? run.pick({ tiny: 2, quick: 20, full: 100 }));
const bytes = Number(flags.mb ?? run.pick({ tiny: 1, quick: 200, full: 1000 })) * 1e6;
/** Short things take turns more often, so that a busy moment of the host hits all of them. */
const shortRounds = run.pick({ tiny: 1, quick: 4, full: 4 });
const execs = run.pick({ tiny: 3, quick: 10, full: 10 });
const slots = run.pick({
  tiny: { tries: 2, n: 2, rounds: 1 },
  quick: { tries: 40, n: 50, rounds: 3 },
  full: { tries: 100, n: 100, rounds: 3 },
});
const transfers = {
  bytes,
  // Slower by far, and kept in the memory of the guest.
  agentBytes: Math.min(bytes, 64e6),
  rounds: run.pick({ tiny: 1, quick: 1, full: 3 }),
  idleMs: run.pick({ tiny: 200, quick: 5000, full: 10_000 }),
};
const requests = run.pick({ tiny: 2, quick: 10, full: 10 });
const connections = {
  rules: 10_000,
  decisions: run.pick({ tiny: 1000, quick: 100_000, full: 200_000 }),
  exchanges: run.pick({ tiny: 2, quick: 10, full: 10 }),
  // A machine may ask a limited number of questions per second.
  lookUps: run.pick({ tiny: 2, quick: 5, full: 5 }),
  rounds: rounds * shortRounds,
};
const tag = "python-numpy";
/** parts that need namespaces and a tap, and the kinds of their rows */
const forRoot = {
  slots: ["starts", "slots"],
  transfers: ["idle", "transfers", "agent channel"],
  ports: ["ports"],
  connections: ["set rules", "exchanges", "look-ups"],
};

function leaveOut(rows: Rows, reason: string): void {
  for (const kind of Object.values(forRoot).flat()) {
    rows.add({ case: "absent", n: 0, wall_ms: 0, contender: kind, reason }, `${kind}: ${reason}`);
  }
}

async function measure(rows: Rows, snapshotDir: string): Promise<void> {
  const reason = await obstacle();
  await using outside = reason === undefined ? await openOutside() : undefined;
  const places = outside && { FORKD_NETWORK_RESOLVER: outside.resolver, FORKD_NETWORK_PROXY: "off" };
  await using full = await startScratchDaemon(run, places);
  await using bare = await startScratchDaemon(run, { FORKD_JAIL: "off" });
  for (const daemon of [full, bare]) {
    await linkSnapshot(snapshotDir, daemon.dir, tag);
    await warmUp(daemon, tag);
  }
  const part = async (name: (typeof partNames)[number], work: () => Promise<void>) => {
    if (!parts.includes(name)) return;
    console.error(name);
    await work();
  };
  await part("forks", async () => {
    await measureForks(rows, { full, bare }, tag, { n: forked, rounds });
    await measureExecs(rows, { full, bare }, tag, { calls: execs, rounds: rounds * shortRounds });
  });
  if (parts.includes("connections")) measureDecisions(rows, connections);
  if (!outside) {
    leaveOut(rows, reason ?? "");
    return;
  }
  await part("slots", () => measureSlots(rows, slots));
  await part("transfers", () => measureTransfers(rows, full, outside, tag, transfers));
  await part("ports", () => measurePorts(rows, full, tag, { requests, rounds: rounds * shortRounds }));
  await part("connections", () => measureConnections(rows, full.forkd, outside, tag, connections));
}

await runBench(async () => {
  const snapshotDir = await numpySnapshot(run);
  const { manifest } = await readSnapshot(snapshotDir, tag);
  const { accelerator, memory_mib: memoryMib } = manifest.machine;
  const version = await command("qemu-system-x86_64", ["--version"]);
  const qemu = /version [\d.]+/.exec(version.stdout)?.[0].replace("version", "QEMU") ?? "QEMU";
  const rows = run.rows({ accelerator, rounds, qemu, memory_mib: memoryMib });
  await measure(rows, snapshotDir);
  const facts = `guest of ${memoryMib} MiB, ${accelerator}, ${qemu}, Node ${process.versions.node}, ${rounds} rounds in turns, medians, ${rows.load()}${run.remark}`;
  publish(run, networkReport(rows.all, { facts, forked, slots: slots.n, bytes }), rows);
});
