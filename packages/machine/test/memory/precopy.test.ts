/** Captures that copy while the process runs. */
import assert from "node:assert/strict";
import { copyFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory, until } from "@forkd/test-support";
import { MemoryCapture } from "../../src/memory/capture.ts";
import { assertHolds, every, Mapper, memoryFile, page, processesWith, run, tool } from "./support.ts";

const tracker = 8;
const canTrack = await run(tool, ["tracking"]).then(
  () => true,
  () => false,
);
const skip = canTrack ? false : "this host cannot track writes";

type Setting = { dir: string; mapper: Mapper; arm: (name?: string) => Promise<MemoryCapture> };

async function setting(t: TestContext, pages: number, how = "", tracked = "yes"): Promise<Setting> {
  const dir = await temporaryDirectory(t);
  const file = await memoryFile(join(dir, "memory"), pages);
  const mapper = await Mapper.start(t, file, pages * page, how, tracked);
  const arm = (name = "layer") =>
    MemoryCapture.arm({
      process: mapper.id,
      memoryFile: file,
      memoryBytes: mapper.bytes,
      layerPath: join(dir, name),
      direct: false,
      tracker,
    });
  return { dir, mapper, arm };
}

/** Takes and writes the capture, and asserts that it holds what the process sees. Returns how many were copied. */
async function assertTakes(
  { dir, mapper }: Setting,
  capture: MemoryCapture,
  expected: readonly number[],
  name = "layer",
): Promise<number> {
  const { pages, copied } = await capture.take();
  assert.equal(pages, expected.length);
  await mapper.dump(join(dir, "dump"));
  await capture.write();
  await assertHolds(join(dir, name), expected, join(dir, "dump"));
  const flat = join(dir, `flat of ${name}`);
  await copyFile(mapper.file, flat);
  await capture.apply(flat);
  assert.ok((await readFile(flat)).equals(await readFile(join(dir, "dump"))));
  return copied;
}

/** Whether memory of the process is registered for tracking. */
async function isRegistered({ mapper }: Setting): Promise<boolean> {
  return /^VmFlags:.* uw /m.test(await readFile(`/proc/${mapper.id.pid}/smaps`, "utf8"));
}

async function residentKib(pid: number): Promise<number> {
  return Number(/^VmRSS:\s+(\d+)/m.exec(await readFile(`/proc/${pid}/status`, "utf8"))?.[1]);
}

test("take() copies only what was written after precopy()", { skip }, async (t) => {
  const all = await setting(t, 40_000, "3");
  const { mapper } = all;
  await mapper.touch(0, 40_000);
  await mapper.dirty(10, 20_000);
  await mapper.dirty(30_001, 2000, 3);
  await using capture = await all.arm();
  const { pages, rounds } = await capture.precopy();
  assert.equal(pages, 22_000);
  assert.equal(rounds, 2, "the second finds nothing");
  assert.ok(await isRegistered(all));
  // Written again, newly written, and discarded.
  await mapper.dirty(50, 10, 100, 2);
  await mapper.dirty(25_000, 7, 1, 2);
  await mapper.discard(15_000, 1000);
  const expected = [
    ...[...every(10, 14_990), ...every(16_000, 4010)],
    ...[...every(25_000, 7), ...every(30_001, 2000, 3)],
  ];
  assert.equal(await assertTakes(all, capture, expected), 17);
  assert.ok(!(await isRegistered(all)), "nothing is left in the process");
});

test("take() finds pages that were discarded and written again", { skip }, async (t) => {
  const all = await setting(t, 4096);
  const { mapper } = all;
  await mapper.dirty(0, 1000);
  await using capture = await all.arm();
  await capture.precopy();
  await mapper.discard(100, 300);
  // Read before they are written, or not.
  await mapper.touch(100, 50);
  await mapper.dirty(100, 50, 1, 9);
  await mapper.dirty(250, 50, 1, 9);
  const expected = [...every(0, 150), ...every(250, 50), ...every(400, 600)];
  assert.equal(await assertTakes(all, capture, expected), 100);
});

test("a capture fails if pages were discarded and read", { skip }, async (t) => {
  const all = await setting(t, 4096);
  await all.mapper.dirty(0, 1000);
  await using capture = await all.arm();
  await capture.precopy();
  await all.mapper.discard(100, 10);
  await all.mapper.touch(103, 1);
  await capture.take();
  await rejectsWith(capture.write(), "engine_failed", /discarded memory that was being captured/);
  assert.ok(!(await isRegistered(all)));
});

test("precopy() and take() can be repeated, also after write()", { skip }, async (t) => {
  const all = await setting(t, 8192, "2");
  const { mapper } = all;
  await using capture = await all.arm();
  assert.deepEqual(await capture.precopy(), { pages: 0, rounds: 1 });
  await mapper.dirty(0, 3000, 2);
  assert.equal((await capture.take()).copied, 3000);
  await mapper.dirty(0, 3, 2, 2);
  assert.equal((await capture.take()).copied, 3000, "a take does not protect");
  assert.equal((await capture.precopy()).pages, 3000);
  await mapper.dirty(0, 5, 2, 3);
  assert.equal(await assertTakes(all, capture, every(0, 3000, 2)), 5);
  await mapper.dirty(7000, 100, 1, 4);
  assert.equal(await assertTakes(all, capture, [...every(0, 3000, 2), ...every(7000, 100)]), 3100);
});

test("rounds end for a process that writes as fast as they copy", { skip }, async (t) => {
  const all = await setting(t, 30_000);
  const { mapper } = all;
  await mapper.dirty(0, 30_000);
  await using capture = await all.arm();
  await mapper.busy(0, 20_000);
  const { pages, rounds } = await capture.precopy();
  assert.ok(rounds <= 8 && pages <= rounds * 30_000, `${pages} pages in ${rounds} rounds`);
  await mapper.calm();
  await assertTakes(all, capture, every(0, 30_000));
});

test("pages that are written during the rounds are captured as they are at last", { skip }, async (t) => {
  const all = await setting(t, 20_000, "4");
  for (let round = 0; round < 10; round++) {
    const name = `layer-${round}`;
    await using capture = await all.arm(name);
    await all.mapper.busy(round * 500, 3000, 3);
    await capture.precopy();
    await capture.precopy();
    await all.mapper.calm();
    const written = Array.from({ length: round + 1 }, (_, i) => every(i * 500, 3000, 3)).flat();
    await assertTakes(
      all,
      capture,
      [...new Set(written)].sort((a, b) => a - b),
      name,
    );
  }
});

test("a helper that is killed in a round harms nothing", { skip }, async (t) => {
  const all = await setting(t, 60_000);
  const { mapper } = all;
  await mapper.dirty(0, 50_000);
  await mapper.busy(0, 50_000);
  for (const name of ["first", "second"]) {
    const capture = await all.arm(name);
    const [pid] = await processesWith(`--layer\0${join(all.dir, name)}`);
    assert.ok(pid !== undefined);
    const refused = assert.rejects(capture.precopy(), /was killed by SIGKILL/);
    // In the middle of the first round; it reports only the end of the last one.
    await until("pages are copied", async () => (await residentKib(pid)) > 4096);
    process.kill(pid, "SIGKILL");
    await refused;
    await capture[Symbol.asyncDispose]();
    assert.ok(await isRegistered(all), "its protection stays");
  }
  await mapper.calm();
  await mapper.dirty(55_000, 10);
  await using capture = await all.arm();
  assert.equal((await capture.precopy()).pages, 50_010, "protection that was left does not count");
  await mapper.dirty(3, 2, 1, 7);
  assert.equal(await assertTakes(all, capture, [...every(0, 50_000), ...every(55_000, 10)]), 2);
  assert.ok(!(await isRegistered(all)));
});

test("a capture without precopy() ignores protection that was left", { skip }, async (t) => {
  const all = await setting(t, 4096);
  await all.mapper.dirty(0, 500);
  {
    await using left = await all.arm("left");
    await left.precopy();
  }
  assert.ok(await isRegistered(all));
  await using capture = await all.arm();
  assert.equal(await assertTakes(all, capture, every(0, 500)), 500);
});

for (const hostile of ["no", "pipe", "fresh", "events"]) {
  test(`a process with the wrong descriptor (${hostile}) is captured as a whole`, { skip }, async (t) => {
    const all = await setting(t, 4096, "", hostile);
    await all.mapper.dirty(0, 500);
    await using capture = await all.arm();
    assert.deepEqual(await capture.precopy(), { pages: 0, rounds: 0 });
    assert.ok(!(await isRegistered(all)));
    await all.mapper.dirty(400, 200, 1, 2);
    assert.equal(await assertTakes(all, capture, every(0, 600)), 600);
  });
}

test("the descriptor of another process does not hide writes", { skip }, async (t) => {
  const all = await setting(t, 4096, "", "other");
  await all.mapper.dirty(0, 500);
  await using capture = await all.arm();
  await capture.precopy();
  await all.mapper.dirty(400, 200, 1, 2);
  assert.equal(await assertTakes(all, capture, every(0, 600)), 600);
});

test("direct and plain captures do not track", { skip }, async (t) => {
  const all = await setting(t, 4096);
  const { mapper } = all;
  await mapper.dirty(0, 500);
  await using capture = await MemoryCapture.arm({
    ...{ process: mapper.id, memoryFile: mapper.file, memoryBytes: mapper.bytes },
    ...{ layerPath: join(all.dir, "layer"), direct: true, tracker },
  });
  assert.deepEqual(await capture.precopy(), { pages: 0, rounds: 0 });
  assert.ok(!(await isRegistered(all)));
  assert.equal(await assertTakes(all, capture, every(0, 500)), 500);
});
