/**
 * npm run bench -- clients [--quick | --tiny] [--rounds 5] [--calls 1000] [--mb 100] [--parts ...] [--out DIR] [--write]
 *
 * What the clients cost: calls through the SDKs and by hand, a large file, many streams at once, the first code
 * of a new sandbox through our SDK and E2B's, and programs from a cold start.
 */
import { parseArgs } from "node:util";
import { readSnapshot } from "@forkd/store";
import { clientsReport } from "./support/clients-report.ts";
import { measureCalls } from "./support/clients/calls.ts";
import { e2bClient } from "./support/clients/e2b.ts";
import { measureFiles } from "./support/clients/files.ts";
import { measureFirstCode } from "./support/clients/first-code.ts";
import { measurePython } from "./support/clients/python.ts";
import { measureStarts } from "./support/clients/starts.ts";
import { measureStreams } from "./support/clients/streams.ts";
import { command } from "./support/deadline.ts";
import { publish } from "./support/report.ts";
import type { Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon } from "./support/scratch-daemon.ts";
import { buildTiny, linkSnapshot, numpySnapshot } from "./support/snapshots.ts";
import { allOf, ask } from "./support/turns.ts";

const partNames = ["calls", "python", "files", "streams", "code", "starts"] as const;
const { values: flags } = parseArgs({
  options: {
    ...commonOptions,
    rounds: { type: "string" },
    calls: { type: "string" },
    mb: { type: "string" },
    parts: { type: "string", default: partNames.join(",") },
  },
});
const run = new Run("clients", flags);
const parts = flags.parts.split(",");
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 3, full: 10 }));
const calls = Number(flags.calls ?? run.pick({ tiny: 3, quick: 200, full: 1000 }));
const bytes = Number(flags.mb ?? run.pick({ tiny: 1, quick: 100, full: 100 })) * 1e6;
const streams = run.pick({
  tiny: { commands: 4, lines: 100, rounds: 1, guests: 1 },
  quick: { commands: 64, lines: 1000, rounds: 1, guests: 4 },
  full: { commands: 64, lines: 1000, rounds: 3, guests: 4 },
});
/** Two sandboxes each; a fork under emulation varies more than a call. */
const codeRounds = run.pick({ tiny: 1, quick: 10, full: 30 });
const starts = run.pick({ tiny: 1, quick: 5, full: 20 });
const tag = "python-numpy";

async function measure(rows: Rows, snapshotDir: string): Promise<void> {
  // The clients of E2B connect to a port.
  await using daemon = await startScratchDaemon(run, { FORKD_LISTEN: "127.0.0.1:0" });
  await linkSnapshot(snapshotDir, daemon.dir, tag);
  const part = async (name: (typeof partNames)[number], work: () => Promise<void>) => {
    if (!parts.includes(name)) return;
    console.error(name);
    await work();
  };
  await using sandbox = await daemon.forkd.create(tag);
  await ask(sandbox);
  await part("calls", () => measureCalls(rows, daemon, sandbox, { calls }));
  await part("python", async () => {
    await measurePython(rows, { socket: daemon.socket, sandbox: sandbox.id }, calls);
  });
  await part("files", () => measureFiles(rows, daemon, sandbox, { snapshotDir, bytes, rounds }));
  await part("streams", async () => {
    const { guests, ...sizes } = streams;
    const tiny = await buildTiny(run, daemon);
    const sandboxes = allOf(await daemon.forkd.fork(tiny, guests), guests);
    await measureStreams(rows, daemon, sandboxes, sizes);
    for (const each of sandboxes) await each.kill();
  });
  await part("code", async () => {
    const createE2b = await e2bClient(daemon, tag);
    await measureFirstCode(rows, daemon, tag, { rounds: codeRounds, createE2b });
  });
  await part("starts", async () => {
    const env = { ...process.env, FORKD_SOCKET: daemon.socket };
    await measureStarts(rows, env, starts);
  });
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
  publish(run, clientsReport(rows.all, { facts, bytes, lines: streams.lines }), rows);
});
