/**
 * A branch is one instant: memory, registers of all CPUs, and disk. The guest runs instant.c, which knows in its registers what
 * memory and disk must hold; here it is branched while all of its CPUs write, and every child is asked what it found.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { runProgram } from "@forkd/base";
import type { BranchMode } from "@forkd/contract";
import type { Sandbox } from "@forkd/sdk";
import { assertConsecutive, Lines } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { repository } from "../support/places.ts";
import { until } from "@forkd/test-support";

/** branches in each mode */
const rounds = 12;
const program = "/root/instant";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
  await daemon.forkd.snapshots.build({
    tag: "two",
    rootfs: join(daemon.dataDir, "snapshots/tiny/rootfs.ext4"),
    vcpus: 2,
    memory_mib: 192,
  });
});
after(() => daemon[Symbol.asyncDispose]());

async function startProgram(): Promise<{ sandbox: Sandbox; beats: Lines }> {
  const path = join(daemon.dir, "instant");
  const source = join(repository, "tests/src/vm/instant.c");
  await runProgram("gcc", ["-static", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", path, source]);
  const sandbox = await daemon.forkd.forkOne("two");
  await sandbox.files.write(program, await readFile(path), { mode: "0755" });
  const beats = new Lines(await sandbox.commands.start([program, "run"]));
  await beats.more(20);
  return { sandbox, beats };
}

type Finding = { ok: boolean; text: string; numbers: Record<string, number[]> };

/** Every invariant of the guest, looked at while its threads stand still. */
async function look(sandbox: Sandbox): Promise<Finding> {
  const {
    stdout,
    stderr,
    exit_code: code,
  } = await sandbox.commands.run([program, "check"], { timeoutSecs: 600 });
  const numbers = Object.fromEntries(
    Array.from(stdout.matchAll(/(\w+)=([\d,]+)/g), ([, name = "", values = ""]) => [
      name,
      values.split(",").map(Number),
    ]),
  );
  return { ok: code === 0, text: stdout + stderr, numbers };
}

/** Each count of the later one with that of the earlier one. */
function pairs(later: Finding, earlier: Finding): [number, number][] {
  return Object.entries(earlier.numbers)
    .filter(([name]) => name !== "logged")
    .flatMap(([name, values]) =>
      values.map((value, index): [number, number] => [later.numbers[name]?.[index] ?? -1, value]),
    );
}

function assertNotBehind(later: Finding, earlier: Finding): void {
  for (const [now, before] of pairs(later, earlier))
    assert.ok(now >= before, `it was further before: ${earlier.text}${later.text}`);
}

/** All of its threads go on, and find nothing wrong by that; a busy host may let one of them wait. */
async function goesOn(sandbox: Sandbox, earlier: Finding): Promise<Finding> {
  let later = earlier;
  await until("every thread goes on", async () => {
    later = await look(sandbox);
    assert.ok(later.ok, later.text);
    return pairs(later, earlier).every(([now, before]) => now > before);
  });
  return later;
}

test("the program finds every kind of inconsistency", async () => {
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
    const sandbox = await daemon.forkd.forkOne("sound");
    assert.ok((await look(sandbox)).ok);
    await sandbox.commands.run([program, "corrupt", what], { check: true });
    const finding = await look(sandbox);
    assert.equal(finding.ok, false, what);
    assert.match(finding.text, found);
    await sandbox.kill();
  }
});

test("every branch is one instant of memory, CPUs and disk, and its source misses no beat", async () => {
  const { sandbox: source, beats } = await startProgram();
  let previous = await look(source);
  assert.ok(previous.ok, previous.text);
  for (const mode of ["live", "diff", "full"] satisfies BranchMode[]) {
    for (let round = 0; round < rounds; round++) {
      const tag = `${mode}-${round}`;
      const branch = await source.branch({ tag, mode });
      // At least what the writers write all the time was captured.
      assert.ok(branch.diff_logical_bytes > 2 * 512 * 4096, `${branch.diff_logical_bytes} bytes`);
      const child = await daemon.forkd.forkOne(tag);
      const first = await look(child);
      assert.ok(first.ok, `${tag}: ${first.text}`);
      assertNotBehind(first, previous);
      // Its threads run: it finds what it can find only by going on.
      if (round % 4 === 0) await goesOn(child, first);
      await child.kill();
      await daemon.forkd.snapshots.remove(tag);
    }
    previous = await goesOn(source, previous);
  }
  await beats.more(20);
  assertConsecutive(beats.all, 1);
  await source.kill();
});
