/**
 * A branch captures memory, disk and the registers of all CPUs at one instant. The guest runs instant.c,
 * whose registers determine what memory and disk must hold. The tests branch it while all CPUs write, and
 * check every child.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { nativeTool, runProgram } from "@forkd/base";
import type { BranchMode } from "@forkd/contract";
import type { Sandbox } from "@forkd/sdk";
import { assertConsecutive, Lines } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { repository } from "../support/places.ts";
import { until } from "@forkd/test-support";

/** branches in each mode */
const rounds = 12;
const program = "/root/instant";
const canTrack = await runProgram(nativeTool("forkd-pages"), ["tracking"]).then(
  () => true,
  () => false,
);
const isRoot = process.getuid?.() === 0;

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
  await buildTwo(daemon);
});
after(() => daemon[Symbol.asyncDispose]());

async function buildTwo({ forkd, dataDir }: TestDaemon): Promise<void> {
  const rootfs = join(dataDir, "snapshots/tiny/rootfs.ext4");
  await forkd.snapshots.build({ tag: "two", rootfs, vcpus: 2, memoryMib: 192 });
}

/** Whether the host sees the writes of the sandbox, so that branches copy while it runs. */
async function isTracked(sandbox: Sandbox): Promise<boolean> {
  const { pid } = await sandbox.refresh();
  const link = await readlink(`/proc/${pid}/fd/8`).catch(() => "");
  return link === "anon_inode:[userfaultfd]";
}

async function startProgram({ forkd, dir }: TestDaemon = daemon): Promise<{
  sandbox: Sandbox;
  beats: Lines;
}> {
  const path = join(dir, "instant");
  const source = join(repository, "tests/src/vm/instant.c");
  await runProgram("gcc", ["-static", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", path, source]);
  const sandbox = await forkd.create("two");
  await sandbox.files.write(program, await readFile(path), { mode: "0755" });
  const beats = new Lines(await sandbox.commands.start([program, "run"]));
  await beats.more(20);
  return { sandbox, beats };
}

type Finding = { ok: boolean; text: string; numbers: Record<string, number[]> };

/** Stops the threads of the guest and checks every invariant. */
async function check(sandbox: Sandbox): Promise<Finding> {
  const {
    stdout,
    stderr,
    exitCode: code,
  } = await sandbox.commands.run([program, "check"], { timeoutMs: 600_000 });
  const numbers = Object.fromEntries(
    Array.from(stdout.matchAll(/(\w+)=([\d,]+)/g), ([, name = "", values = ""]) => [
      name,
      values.split(",").map(Number),
    ]),
  );
  return { ok: code === 0, text: stdout + stderr, numbers };
}

/** Pairs of each counter, later and earlier. */
function pairs(later: Finding, earlier: Finding): [number, number][] {
  return Object.entries(earlier.numbers)
    .filter(([name]) => name !== "logged")
    .flatMap(([name, values]) =>
      values.map((value, index): [number, number] => [later.numbers[name]?.[index] ?? -1, value]),
    );
}

function assertNotBehind(later: Finding, earlier: Finding): void {
  for (const [now, before] of pairs(later, earlier))
    assert.ok(now >= before, `a counter decreased: ${earlier.text}${later.text}`);
}

/** Waits until every thread has made progress, and asserts that none finds an inconsistency. */
async function checkProgress(sandbox: Sandbox, earlier: Finding): Promise<Finding> {
  let later = earlier;
  await until("every thread makes progress", async () => {
    later = await check(sandbox);
    assert.ok(later.ok, later.text);
    return pairs(later, earlier).every(([now, before]) => now > before);
  });
  return later;
}

test("instant.c finds every kind of inconsistency", async () => {
  const { sandbox: source } = await startProgram();
  await source.branch({ tag: "sound" });
  await source.kill();
  for (const [what, found] of [
    ["page", /page 100 had \d+\/\d+ before/],
    ["torn", /page 200 had/],
    ["cold", /cold pages sum up to/],
    ["handshake", /its word is/],
    ["ring", /slot \d+ ha[sd] record/],
    ["ahead", /slot \d+ ha[sd] record/],
    ["log", /the log has \d+ lines|line \d+ of the log/],
  ] as const) {
    const sandbox = await daemon.forkd.create("sound");
    assert.ok((await check(sandbox)).ok);
    await sandbox.commands.run([program, "corrupt", what], { check: true });
    const finding = await check(sandbox);
    assert.equal(finding.ok, false, what);
    assert.match(finding.text, found);
    await sandbox.kill();
  }
});

test("every branch is one instant of memory, CPUs and disk, and the source loses no output", async () => {
  const { sandbox: source, beats } = await startProgram();
  assert.equal(await isTracked(source), canTrack);
  let previous = await check(source);
  assert.ok(previous.ok, previous.text);
  for (const mode of ["live", "diff", "full"] satisfies BranchMode[]) {
    for (let round = 0; round < rounds; round++) {
      const tag = `${mode}-${round}`;
      const branch = await source.branch({ tag, mode });
      // At least the pages that the writers always change were captured.
      assert.ok(branch.diffLogicalBytes > 2 * 512 * 4096, `${branch.diffLogicalBytes} bytes`);
      const child = await daemon.forkd.create(tag);
      const first = await check(child);
      assert.ok(first.ok, `${tag}: ${first.text}`);
      assertNotBehind(first, previous);
      // Running threads find further inconsistencies.
      if (round % 4 === 0) await checkProgress(child, first);
      await child.kill();
      await daemon.forkd.snapshots.remove(tag);
    }
    previous = await checkProgress(source, previous);
  }
  await beats.more(20);
  assertConsecutive(beats.all, 1);
  await source.kill();
});

test(
  "a branch is one instant where writes cannot be tracked",
  { skip: canTrack && isRoot ? false : "tracking cannot be taken away here" },
  async () => {
    await using other = await startDaemon({
      snapshots: ["tiny"],
      mounts: "mount --bind /dev/null /dev/userfaultfd",
    });
    await buildTwo(other);
    const { sandbox: source } = await startProgram(other);
    assert.equal(await isTracked(source), false);
    for (let round = 0; round < 3; round++) {
      const { tag } = await source.branch({ tag: `whole-${round}` });
      const child = await other.forkd.create(tag);
      const finding = await check(child);
      assert.ok(finding.ok, `${tag}: ${finding.text}`);
      await child.kill();
    }
    await source.kill();
  },
);

test(
  "instant.c finds the lack of a write after the first copy of a page",
  { skip: canTrack && isRoot ? false : "needs tracking and root" },
  async () => {
    const [broken, sound] = [nativeTool("test-forgetful-pages"), nativeTool("forkd-pages")];
    await using other = await startDaemon({
      snapshots: ["tiny"],
      mounts: `mount --bind ${broken} ${sound}`,
    });
    await buildTwo(other);
    const { sandbox: source } = await startProgram(other);
    const found: string[] = [];
    for (let round = 0; round < 5 && found.length === 0; round++) {
      const { tag } = await source.branch({ tag: `broken-${round}` });
      const child = await other.forkd.create(tag);
      const finding = await check(child);
      if (!finding.ok) found.push(finding.text);
      await child.kill();
    }
    // A writer finds an old page, or the program has crashed because of one.
    assert.match(found.join(), /writer \d|Connection refused/);
    await source.kill();
  },
);
