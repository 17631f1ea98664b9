/** Faults around a branch: a full disk, damaged files, missing parents, a caller that disconnects. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync, statfsSync } from "node:fs";
import { open, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { assertNoDrafts } from "../support/branches.ts";
import { startDaemon } from "../support/daemon.ts";
import { linkSnapshots, ownFile } from "../support/data-dir.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";
import { fillUp, ownDisk } from "../support/small-disk.ts";
import { testDir } from "../support/test-dir.ts";

const mib = 1024 * 1024;
const modes = ["live", "diff", "full"] as const;

async function flip(path: string, offset: number): Promise<void> {
  await using file = await open(path, "r+");
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, offset);
  byte[0] = (byte[0] ?? 0) ^ 0xff;
  await file.write(byte, 0, 1, offset);
}

async function tagsOf(forkd: Forkd): Promise<string[]> {
  return (await forkd.snapshots.list().all()).map(({ tag }) => tag);
}

test("a branch on a full disk fails and affects nothing else", async () => {
  await using dir = await testDir();
  await using disk = await ownDisk(dir.path, { tmpfs: "420m" }, ["tiny"]);
  await using daemon = await startDaemon({ dataDir: disk.dataDir });
  const { forkd } = daemon;
  const source = await forkd.create("tiny");
  // More memory than the disk will have room for, and a file that must stay readable.
  await sh(source, "yes abcdefg | head -c 10000000 > /dev/shm/big; echo kept > /root/kept; sync");
  for (const mode of modes) {
    const filler = await fillUp(disk.dataDir, 2 * mib);
    const error = await rejectsWith(source.branch({ tag: mode, mode }), "disk_full");
    assert.match(error.message, /space/i);
    await assertNoDrafts(forkd, disk.dataDir);
    assert.equal(await sh(source, "cat /root/kept"), "kept");
    assert.deepEqual(
      (await tagsOf(forkd)).filter((tag) => tag === mode),
      [],
    );
    await rm(filler);
    const branch = await source.branch({ tag: mode, mode, n: 1 });
    assert.equal(await sh(branch.children[0] as Sandbox, "cat /root/kept"), "kept");
    await (branch.children[0] as Sandbox).kill();
    await forkd.snapshots.remove(mode);
    await forkd.gc();
  }

  // No call waits for this branch, so the list of snapshots reports its failure.
  const filler = await fillUp(disk.dataDir, 2 * mib);
  await source.branch({ tag: "later", wait: false });
  await rejectsWith(forkd.snapshots.ready("later"), "snapshot_failed", /later/);
  await rejectsWith(forkd.fork("later"), "snapshot_failed", /space/i);
  await rejectsWith(source.pause(), "disk_full");
  await assertNoDrafts(forkd, disk.dataDir);
  assert.equal((await forkd.sandboxes.get(source.id)).info.state, "running");
  assert.equal(await sh(source, "cat /root/kept"), "kept");
  await rm(filler);
  assert.equal((await source.branch({ tag: "later" })).status, "ready");
  await source.pause();
  await source.resume();
  assert.equal(await sh(source, "cat /root/kept"), "kept");
});

test("fork() refuses a branch after one byte of it or of its parent's memory changed, and names the file", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const source = await daemon.forkd.create("tiny");
  await sh(source, "echo one > /root/one; sync");
  await source.branch({ tag: "below" });
  await sh(source, "echo two > /root/two; sync");
  await source.branch({ tag: "b" });
  await source.kill();
  const dir = join(daemon.dataDir, "snapshots/b");
  const header = (await readFile(join(dir, "layer"))).subarray(0, 4096);
  const place = (at: number) => Number(header.readBigUInt64LE(at));
  const disks = readdirSync(dir).filter((name) => name.startsWith("disk-"));
  assert.ok(disks.length >= 2, disks.join());
  for (const [name, offset] of [
    ["layer", 24],
    ["layer", place(40) + 100],
    ["layer", place(48) + 1],
    ["layer", place(56) + 1],
    ["devices", 100],
    ...disks.map((disk) => [disk, 70_000] as const),
    ["manifest.json", 0],
    ["manifest.json", (await readFile(join(dir, "manifest.json"), "utf8")).indexOf('"digest"', 1500) + 12],
  ] as const) {
    const path = await ownFile(daemon.dataDir, "b", name);
    await flip(path, offset);
    const what = new RegExp(`"b".*${name === "manifest.json" ? "" : name}`);
    await rejectsWith(daemon.forkd.fork("b"), "snapshot_corrupt", what);
    await flip(path, offset);
  }
  const memory = await ownFile(daemon.dataDir, "tiny", "memory");
  await flip(memory, 3 * mib);
  await rejectsWith(daemon.forkd.fork("b"), "snapshot_corrupt", /"b".*"memory" of its ancestor "tiny"/);
  await flip(memory, 3 * mib);
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);

  const parent = join(daemon.dataDir, "snapshots/tiny");
  await rename(parent, `${parent}-away`);
  await rejectsWith(daemon.forkd.fork("b"), "snapshot_corrupt", /"b": its parent "tiny" is missing/);
  await rename(`${parent}-away`, parent);
  const manifest = await ownFile(daemon.dataDir, "tiny", "manifest.json");
  const text = await readFile(manifest, "utf8");
  const { manifest_digest: _, ...other } = JSON.parse(text) as Record<string, unknown>;
  await writeFile(manifest, JSON.stringify(other));
  await rejectsWith(daemon.forkd.fork("b"), "snapshot_corrupt", /"b": its parent "tiny" was replaced/);
  await writeFile(manifest, text);
  const child = await daemon.forkd.create("b");
  assert.equal(await sh(child, "cat /root/one /root/two"), "one\ntwo");
});

test("a view that changed while no daemon ran is not used", async () => {
  await using dir = await testDir();
  const dataDir = join(dir.path, "data");
  await linkSnapshots(dataDir, ["tiny"]);
  {
    await using daemon = await startDaemon({ dataDir });
    const source = await daemon.forkd.create("tiny");
    await sh(source, "echo here > /root/x");
    await source.branch({ tag: "b" });
    const child = await daemon.forkd.create("b");
    assert.equal(await sh(child, "cat /root/x"), "here");
  }
  const views = join(dataDir, "cache/memory-views");
  const [view = "", ...others] = await readdir(views);
  assert.deepEqual(others, []);
  await flip(join(views, view), 80);
  await using daemon = await startDaemon({ dataDir });
  const child = await daemon.forkd.create("b");
  assert.equal(await sh(child, "cat /root/x"), "here");
  assert.ok(!(await readdir(views)).includes(view));
});

test("a branch whose caller disconnects leaves no draft, and the source keeps running", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const source = await daemon.forkd.create("tiny");
  let cancelled = 0;
  for (const [index, ms] of [0, 8, 16, 30, 45, 70, 110].entries()) {
    const mode = modes[index % modes.length];
    const abort = new AbortController();
    const pending = source.branch({ tag: `gone-${ms}`, mode, signal: abort.signal });
    setTimeout(() => abort.abort(), ms);
    await pending.then(
      () => undefined,
      (error: { code?: string }) => {
        assert.equal(error.code, "cancelled");
        cancelled++;
      },
    );
    await assertNoDrafts(daemon.forkd, daemon.dataDir);
    assert.equal(await sh(source, "echo here"), "here");
  }
  assert.ok(cancelled > 0);
  await until("every snapshot that is left is ready", async () =>
    (await daemon.forkd.snapshots.list().all()).every(({ status }) => status === "ready"),
  );
  const branch = await source.branch({ tag: "after", n: 1 });
  assert.equal(await sh(branch.children[0] as Sandbox, "echo here"), "here");
});

test("a branch takes space for changed pages only, with all of its memory when files can share blocks", async () => {
  await using dir = await testDir();
  await using disk = await ownDisk(dir.path, { xfs: "1g" }, ["tiny"]);
  await using daemon = await startDaemon({ dataDir: disk.dataDir });
  const used = () => {
    const { blocks, bfree, bsize } = statfsSync(disk.dataDir);
    return (blocks - bfree) * bsize;
  };
  const source = await daemon.forkd.create("tiny");
  await sh(source, "echo here > /root/x");
  await runProgram("sync", ["-f", disk.dataDir]);
  const before = used();
  for (const mode of modes) {
    const { tag } = await source.branch({ tag: mode, mode });
    if (mode === "full") {
      const { dir: snapshotDir } = await daemon.forkd.snapshots.info(tag);
      const { stdout } = await runProgram("filefrag", ["-v", join(snapshotDir, "memory")]);
      const extents = stdout.split("\n").filter((line) => /^\s*\d+:/.test(line));
      assert.ok(extents.filter((line) => line.includes("shared")).length > 0, stdout);
    }
    const child = await daemon.forkd.create(tag);
    assert.equal(await sh(child, "cat /root/x"), "here");
    await child.kill();
  }
  await runProgram("sync", ["-f", disk.dataDir]);
  const grown = used() - before;
  const whole = (await daemon.forkd.snapshots.info("tiny")).memoryPhysicalBytes;
  assert.ok(grown < whole, `three branches took ${grown} bytes, one image has ${whole}`);
});
