/**
 * npm run bench -- hub [--quick | --tiny] [--rounds 4] [--out DIR] [--write]
 *
 * What it costs to share a snapshot: archive and unpack against zstd, tar and cp; push and pull against a
 * download and tar, with a registry on this host; what a second push and a branch move; a fork right after a pull.
 */
import { createReadStream, createWriteStream } from "node:fs";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { parseArgs } from "node:util";
import { Scope } from "@forkd/base";
import type { Forkd } from "@forkd/sdk";
import { startRegistry } from "@forkd/test-support";
import { countingProxy, type CountingProxy } from "./support/hub/counting-proxy.ts";
import {
  compress,
  downloadAndUntar,
  makeTar,
  untarAndCopy,
  writeNonZero,
} from "./support/hub/plain-files.ts";
import { lossesFirst, number, publish, targetTable } from "./support/report.ts";
import type { Row } from "./support/row-shapes.ts";
import { median, type Rows } from "./support/rows.ts";
import { commonOptions, Run } from "./support/run.ts";
import { runBench, startScratchDaemon, type ScratchDaemon } from "./support/scratch-daemon.ts";
import { buildBase } from "./support/snapshots.ts";
import { ask } from "./support/turns.ts";

const { values: flags } = parseArgs({ options: { ...commonOptions, rounds: { type: "string" } } });
const run = new Run("hub", flags);
const rounds = Number(flags.rounds ?? run.pick({ tiny: 1, quick: 2, full: 4 }));
const memoryMib = 512;
const mib = 1024 * 1024;
/** The smallest size that zstd is asked for; a tiny run does not wait for it. */
const smallest = run.pick({ tiny: ["-1"], quick: ["-19", "--long"], full: ["-19", "--long"] });
const forks = run.pick({ tiny: 1, quick: 3, full: 5 });

type Files = { base: string; dir: string; nonZero: string; tar: string; archive: string; scratch: string };

async function timed(work: () => Promise<void>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

async function firstAnswer(forkd: Forkd, tag: string): Promise<number> {
  const started = performance.now();
  await using sandbox = await forkd.create(tag);
  await ask(sandbox);
  return performance.now() - started;
}

async function pack({ dir, forkd }: ScratchDaemon, { base, archive }: Files, rows: Rows): Promise<void> {
  // Blobs of an earlier round would be reused.
  await rm(join(dir, "cache/blobs"), { recursive: true, force: true });
  const wallMs = await timed(() => pipeline(forkd.snapshots.archive(base), createWriteStream(archive)));
  rows.add({ case: "pack", n: 1, wall_ms: wallMs, bytes: (await stat(archive)).size });
}

async function unpack({ archive, base }: Files, rows: Rows): Promise<void> {
  await using other = await startScratchDaemon(run);
  for (const daemon of ["new", "used"]) {
    const wallMs = await timed(async () => {
      await other.forkd.snapshots.unpack(createReadStream(archive, { highWaterMark: mib }), { tag: base });
    });
    rows.add({ case: "unpack", n: 1, wall_ms: wallMs, bytes: (await stat(archive)).size, daemon });
    await other.forkd.snapshots.remove(base);
  }
}

async function push(
  forkd: Forkd,
  rows: Rows,
  options: { name: string; tag: string; proxy: CountingProxy; reference: string; layerBytes?: number },
): Promise<void> {
  const { name, tag, proxy, reference, layerBytes } = options;
  const before = proxy.sent + proxy.received;
  const wallMs = await timed(async () => {
    await forkd.hub.push(tag, `${proxy.address}/${reference}`);
  });
  const moved = proxy.sent + proxy.received - before;
  rows.add({ case: `push, ${name}`, n: 1, wall_ms: wallMs, moved_bytes: moved, layer_bytes: layerBytes });
}

/** A snapshot over the base, with a few MiB of new memory and files. */
async function branch(forkd: Forkd, base: string, tag: string): Promise<number> {
  await using sandbox = await forkd.create(base);
  const { error } = await sandbox.eval(
    `import os\n_noise = numpy.frombuffer(os.urandom(${4 * mib}), dtype=numpy.uint8)\nopen("/root/noise", "wb").write(os.urandom(${2 * mib}))`,
  );
  if (error !== null) throw new Error(error);
  await sandbox.branch({ tag });
  // What only the branch has: its layer, and the disk that was written.
  return (await forkd.snapshots.info(tag)).physicalBytes;
}

/** Pulls twice: into a daemon that has just started, and into one that has forked before. */
async function pull(
  address: string,
  { base }: Files,
  rows: Rows,
  { local, round }: { local: Forkd; round: number },
): Promise<void> {
  await using other = await startScratchDaemon(run);
  for (const daemon of ["new", "used"]) {
    let moved = 0;
    const wallMs = await timed(async () => {
      moved = (await other.forkd.hub.pull(`${address}/bench/base:1`, { tag: base })).movedBytes;
    });
    rows.add({ case: "pull", n: 1, wall_ms: wallMs, moved_bytes: moved, daemon });
    // In turns: who forks first after a pull finds cold caches of the processor.
    const both = [
      ["pulled", other.forkd],
      ["local", local],
    ] as const;
    for (let nth = 0; nth < forks; nth++) {
      for (const [name, forkd] of round % 2 === 0 ? both : both.toReversed())
        rows.add({ case: `fork, ${name}`, n: 1, wall_ms: await firstAnswer(forkd, base), nth, daemon });
    }
    await other.forkd.snapshots.remove(base);
  }
}

async function main(): Promise<void> {
  await using daemon = await startScratchDaemon(run);
  const { forkd } = daemon;
  const { accelerator } = await forkd.status();
  const base = await buildBase(run, daemon, memoryMib);
  await using scope = new Scope();
  const scratch = await mkdtemp(join(run.scratch, "bench-hub-"));
  scope.defer(() => rm(scratch, { recursive: true, force: true }));
  const registry = await startRegistry({
    after: (work: () => unknown) => scope.defer(async () => void (await work())),
  });
  const proxy = scope.use(await countingProxy(registry.address));
  const rows = run.rows({ accelerator, rounds, memory_mib: memoryMib });
  const dir = join(daemon.dir, "snapshots", base);
  const at = (name: string) => join(scratch, name);
  const files = {
    base,
    dir,
    nonZero: at("non-zero"),
    tar: at("base.tar.zst"),
    archive: at("archive"),
    scratch,
  };
  const inputBytes = await writeNonZero(dir, files.nonZero);
  const tarBytes = await makeTar(dir, files.tar);
  await firstAnswer(forkd, base);
  for (let round = 0; round < rounds; round++) {
    console.error(`round ${round + 1} of ${rounds}`);
    await pack(daemon, files, rows);
    const plain = await compress(files.nonZero, ["-3"]);
    rows.add({ case: "zstd -3", n: 1, wall_ms: plain.wallMs, bytes: plain.bytes, input_bytes: inputBytes });
    await unpack(files, rows);
    const copied = await untarAndCopy(files.tar, scratch);
    rows.add({ case: "tar, copy", n: 1, wall_ms: copied, bytes: tarBytes });
    const name = round === 0 ? "first" : "other repository";
    await push(forkd, rows, { name, tag: base, proxy, reference: `bench/base-${round}:1` });
    if (round === 0)
      await push(forkd, rows, { name: "other repository", tag: base, proxy, reference: "bench/base:1" });
    await push(forkd, rows, { name: "again", tag: base, proxy, reference: "bench/base:1" });
    const tag = `branch-${round}`;
    const layerBytes = await branch(forkd, base, tag);
    await push(forkd, rows, { name: "branch", tag, proxy, reference: `bench/base:${tag}`, layerBytes });
    await pull(registry.address, files, rows, { local: forkd, round });
    const downloaded = await downloadAndUntar(files.tar, scratch);
    rows.add({ case: "download, tar", n: 1, wall_ms: downloaded, bytes: tarBytes });
  }
  console.error("the smallest that zstd can do");
  const small = await compress(files.nonZero, smallest);
  rows.add({
    case: "zstd -19 --long",
    n: 1,
    wall_ms: small.wallMs,
    bytes: small.bytes,
    input_bytes: inputBytes,
  });
  publish(run, report(rows.all, `${accelerator}, ${rows.load()}`), rows);
}

function report(all: readonly Row[], facts: string): string {
  const field = (name: string, key: string) =>
    median(all.filter((row) => row.case === name).map((row) => Number(row[key])));
  const wall = (name: string) => field(name, "wall_ms");
  const size = (name: string) => field(name, "bytes");
  const seconds = (name: string) => `${number(wall(name) / 1000, 2)} s`;
  const megabytes = (bytes: number) => `${number(bytes / 1e6)} MB`;
  const moved = (name: string) => field(`push, ${name}`, "moved_bytes");
  const firstFork = (where: string, daemon: string) =>
    median(
      all
        .filter((row) => row.case === `fork, ${where}` && row["nth"] === 0 && row["daemon"] === daemon)
        .map((row) => row.wall_ms),
    );
  const targets = [
    {
      figure: "archive / zstd -19 --long of the bytes that are not zero",
      measured: size("pack") / size("zstd -19 --long"),
      limit: 1.1,
      detail: `${megabytes(size("pack"))} / ${megabytes(size("zstd -19 --long"))} of ${megabytes(field("zstd -3", "input_bytes"))}; zstd -3: ${megabytes(size("zstd -3"))}`,
    },
    {
      figure: "time to pack / zstd -3 of the same bytes",
      measured: wall("pack") / wall("zstd -3"),
      limit: 1.1,
      detail: `${seconds("pack")} / ${seconds("zstd -3")}; zstd -19 --long: ${seconds("zstd -19 --long")}`,
    },
    {
      figure: "tar --zstd and copy / unpack",
      measured: wall("tar, copy") / wall("unpack"),
      limit: 3,
      atLeast: true,
      detail: `${seconds("tar, copy")} / ${seconds("unpack")}; unpack verifies everything and syncs`,
    },
    {
      figure: "moved by a second push of the same snapshot",
      measured: moved("again") / 1024,
      limit: 64,
      unit: "KiB",
    },
    {
      figure: "moved by the push of a branch / what only the branch has",
      measured: moved("branch") / field("push, branch", "layer_bytes"),
      limit: 1.2,
      detail: `${megabytes(moved("branch"))} / ${megabytes(field("push, branch", "layer_bytes"))}`,
    },
    {
      figure: "download and tar / pull",
      measured: wall("download, tar") / wall("pull"),
      limit: 2,
      atLeast: true,
      detail: `${seconds("download, tar")} / ${seconds("pull")}`,
    },
    {
      figure: "first fork after a pull / local fork",
      measured: firstFork("pulled", "used") / firstFork("local", "used"),
      limit: 1.1,
      detail: `${number(firstFork("pulled", "used"), 0)} / ${number(firstFork("local", "used"), 0)} ms; ${number(firstFork("pulled", "new"), 0)} / ${number(firstFork("local", "new"), 0)} ms if it is the first fork of its daemon; ${number(wall("fork, pulled"), 0)} / ${number(wall("fork, local"), 0)} ms over all forks`,
    },
  ];
  return [
    `Sharing a snapshot of a guest with numpy (${memoryMib} MiB, ${facts}; registry, proxy and both daemons on this host; medians of ${rounds} rounds${run.remark}). First push: ${seconds("push, first")}, ${megabytes(moved("first"))}.`,
    targetTable(lossesFirst(targets)),
  ].join("\n\n");
}

await runBench(main);
