import assert from "node:assert/strict";
import { copyFile, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { MemoryCapture } from "../../src/memory/capture.ts";
import { temporaryDirectory } from "@forkd/test-support";
import { assertHolds, every, Mapper, memoryFile, page, readLayer, Talker, tool } from "./support.ts";

const modes = [
  { name: "buffered", direct: false },
  { name: "direct", direct: true },
];

async function mapped(t: TestContext, pages: number, how?: string): Promise<{ dir: string; mapper: Mapper }> {
  const dir = await temporaryDirectory(t);
  const file = await memoryFile(join(dir, "memory"), pages);
  return { dir, mapper: await Mapper.start(t, file, pages * page, how) };
}

function arm(mapper: Mapper, layerPath: string, direct: boolean): Promise<MemoryCapture> {
  return MemoryCapture.arm({
    process: mapper.id,
    memoryFile: mapper.file,
    memoryBytes: mapper.bytes,
    layerPath,
    direct,
  });
}

for (const { name, direct } of modes) {
  test(`a ${name} capture has exactly the written pages`, async (t) => {
    const { dir, mapper } = await mapped(t, 4096);
    await mapper.touch(0, 4096);
    await mapper.dirty(0, 1);
    await mapper.dirty(4095, 1);
    await mapper.dirty(100, 50);
    await mapper.dirty(1000, 700, 2);
    await mapper.dirty(3000, 10);
    await mapper.discard(3003, 2);
    const expected = [
      ...[0, ...every(100, 50), ...every(1000, 700, 2)],
      ...[...every(3000, 3), ...every(3005, 5), 4095],
    ];
    const layerPath = join(dir, "layer");
    await using capture = await arm(mapper, layerPath, direct);
    assert.equal(capture.expectedPages, expected.length);
    const taken = await capture.take();
    assert.equal(taken.pages, expected.length);
    assert.ok(taken.scanUs >= 0 && taken.copyUs >= 0);
    const written = await capture.write();
    assert.deepEqual(written, {
      pages: expected.length,
      extents: 1 + 1 + 700 + 2 + 1,
      fileBytes: (await stat(layerPath)).size,
    });
    assert.equal((await stat(layerPath)).mode & 0o777, 0o600);
    await mapper.dump(join(dir, "dump"));
    await assertHolds(layerPath, expected, join(dir, "dump"));
  });

  test(`a ${name} capture without changed pages is a header block`, async (t) => {
    const { dir, mapper } = await mapped(t, 64);
    await mapper.touch(0, 64);
    await using capture = await arm(mapper, join(dir, "layer"), direct);
    assert.equal(capture.expectedPages, 0);
    assert.equal((await capture.take()).pages, 0);
    assert.deepEqual(await capture.write(), { pages: 0, extents: 0, fileBytes: page });
    await readLayer(join(dir, "layer"), 0);
    await copyFile(mapper.file, join(dir, "flat"));
    await capture.apply(join(dir, "flat"));
    assert.ok((await readFile(join(dir, "flat"))).equals(await readFile(mapper.file)));
  });

  test(`a ${name} capture grows beyond its reserved space, and can be taken and written again`, async (t) => {
    const { dir, mapper } = await mapped(t, 8192);
    const [layerPath, dump, flat] = [join(dir, "layer"), join(dir, "dump"), join(dir, "flat")];
    await using capture = await arm(mapper, layerPath, direct);
    assert.equal(capture.expectedPages, 0);
    await mapper.dirty(10, 1500, 2);
    assert.equal((await capture.take()).pages, 1500);
    await mapper.dirty(10, 7000, 1, 2);
    assert.equal((await capture.take()).pages, 7000, "more than two threads start with");
    await capture.write();
    await mapper.dump(dump);
    await assertHolds(layerPath, every(10, 7000), dump);

    await mapper.discard(500, 6510);
    assert.equal((await capture.take()).pages, 490);
    await capture.write();
    await mapper.dump(dump);
    await assertHolds(layerPath, every(10, 490), dump);

    await mapper.dirty(0, 8192, 1, 3);
    assert.equal((await capture.take()).pages, 8192);
    await capture.write();
    await mapper.dump(dump);
    await assertHolds(layerPath, every(0, 8192), dump);
    await copyFile(mapper.file, flat);
    await capture.apply(flat);
    assert.ok((await readFile(flat)).equals(await readFile(dump)));
  });

  test(`apply() of a ${name} capture gives a flat file the content that the process sees`, async (t) => {
    const { dir, mapper } = await mapped(t, 8192, "4");
    await mapper.dirty(2000, 3000);
    await mapper.dirty(6000, 600, 3);
    const [before, after, dump] = [join(dir, "before"), join(dir, "after one"), join(dir, "dump")];
    await using capture = await arm(mapper, join(dir, "layer"), direct);
    assert.equal((await capture.take()).pages, 3600);
    await mapper.dump(dump);
    await copyFile(mapper.file, before);
    await capture.apply(before);
    await capture.write();
    await copyFile(mapper.file, after);
    await capture.apply(after);
    const seen = await readFile(dump);
    assert.ok((await readFile(before)).equals(seen));
    assert.ok((await readFile(after)).equals(seen), "also after write");
    const { extents } = await readLayer(join(dir, "layer"), 3600);
    assert.deepEqual(
      extents[0],
      { first: 2000, count: 3000 },
      "one extent across the border of two mappings",
    );
  });
}

test("direct, buffered and plain captures are identical", async (t) => {
  const { dir, mapper } = await mapped(t, 16384, "3");
  await mapper.touch(0, 16384);
  await mapper.dirty(3, 2500, 2);
  await mapper.dirty(6000, 5000);
  await mapper.dirty(12001, 1400, 3);
  const capture = async (name: string, ...flags: string[]): Promise<Buffer> => {
    const layer = join(dir, name);
    const helper = new Talker(t, tool, [
      ...["capture", "--pid", String(mapper.id.pid), "--memory", mapper.file],
      ...["--bytes", String(mapper.bytes), "--layer", layer, ...flags],
    ]);
    assert.equal(await helper.line(), "armed 8900");
    assert.match((await helper.ask("take")) ?? "", /^taken 8900 \d+ \d+ 8900$/);
    assert.equal(await helper.ask("write"), `written 8900 3901 ${page + 8900 * page + 3901 * 16}`);
    helper.child.stdin.end();
    assert.equal(await helper.line(), undefined, "it exits at the end of its input");
    return readFile(layer);
  };
  const buffered = await capture("buffered");
  await readLayer(join(dir, "buffered"), 8900);
  assert.ok(buffered.equals(await capture("direct", "--direct")));
  assert.ok(buffered.equals(await capture("plain", "--plain")));
  assert.ok(buffered.equals(await capture("plain-direct", "--plain", "--direct")));
});
