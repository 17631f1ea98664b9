import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { headerBytes, pageBytes } from "../src/layer-format.ts";
import { applyLayer, openLayer, verifyLayer } from "../src/layer.ts";
import { mergeLayers } from "../src/merge-layers.ts";
import { extentsOf, fileEquals, overlay, randomNumbers, randomPages, writeLayer } from "./layer-model.ts";
import type { Pages } from "./layer-model.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { flipByte, mib, namesIn } from "./support.ts";

const run = (first: number, count: number, byte: number): [number, number][] =>
  Array.from({ length: count }, (_, index) => [first + index, byte]);

const pairs: [string, Pages, Pages][] = [
  ["none and none", new Map(), new Map()],
  ["none below", new Map(), new Map(run(3, 4, 1))],
  ["none above", new Map(run(3, 4, 1)), new Map()],
  ["the same", new Map(run(3, 400, 1)), new Map(run(3, 400, 2))],
  ["hidden", new Map([...run(10, 5, 1), ...run(20, 5, 1)]), new Map(run(0, 600, 2))],
  ["in the middle", new Map(run(0, 600, 1)), new Map([...run(100, 1, 2), ...run(300, 200, 3)])],
  ["adjacent", new Map([...run(0, 5, 1), ...run(10, 5, 1)]), new Map(run(5, 5, 2))],
  ["overlapping ends", new Map([...run(0, 10, 1), ...run(30, 10, 1)]), new Map(run(5, 30, 2))],
];
for (let seed = 100; seed < 120; seed++) {
  const random = randomNumbers(seed);
  pairs.push([`seed ${seed}`, randomPages(random, 1024, random(50)), randomPages(random, 1024, random(50))]);
}

test("mergeLayers() makes a layer with the effect of the lower one, then the upper one", async (t) => {
  const dir = await temporaryDirectory(t);
  const flat = Buffer.alloc(1024 * pageBytes, 0xee);
  for (const [index, [name, lower, upper]] of pairs.entries()) {
    const paths = ["lower", "upper", "merged", "flat"].map((file) => join(dir, `${index}-${file}`));
    const [lowerPath = "", upperPath = "", mergedPath = "", flatPath = ""] = paths;
    await writeLayer(lowerPath, flat.length, lower);
    await writeLayer(upperPath, flat.length, upper);
    const finished = await mergeLayers(await openLayer(lowerPath), await openLayer(upperPath), mergedPath);
    const merged = await openLayer(mergedPath, finished.digest);
    const union = new Map([...lower, ...upper]);
    assert.equal(merged.pages, union.size, name);
    const extents = extentsOf(union);
    assert.deepEqual(
      [...merged.extents.firsts],
      extents.map(({ first }) => first),
      name,
    );
    assert.deepEqual(
      [...merged.extents.counts],
      extents.map(({ count }) => count),
      name,
    );
    await verifyLayer(merged);
    await writeFile(flatPath, flat);
    await applyLayer(merged, flatPath);
    assert.ok(await fileEquals(flatPath, overlay(overlay(flat, lower), upper)), name);
  }
});

test("mergeLayers() refuses layers that do not match or are damaged, and leaves no file", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = (name: string) => join(dir, name);
  await writeLayer(path("lower"), 4 * mib, new Map(run(0, 500, 1)));
  await writeLayer(path("upper"), 4 * mib, new Map(run(100, 500, 2)));
  await writeLayer(path("other"), 8 * mib, new Map(run(0, 1, 1)));
  const [lower, upper, other] = await Promise.all(
    ["lower", "upper", "other"].map((name) => openLayer(path(name))),
  );
  assert.ok(lower && upper && other);
  const before = await namesIn(dir);
  await rejectsWith(mergeLayers(lower, other, path("out")), "snapshot_corrupt", /one below/);
  await assert.rejects(mergeLayers(lower, upper, path("out"), { signal: AbortSignal.abort() }), {
    name: "AbortError",
  });
  await assert.rejects(mergeLayers(lower, upper, path("other")), { code: "EEXIST" });
  // Pages that the upper layer hides are checked too.
  await flipByte(path("lower"), headerBytes + 300 * pageBytes);
  await rejectsWith(mergeLayers(lower, upper, path("out")), "snapshot_corrupt", /chunk 1 of its pages/);
  assert.deepEqual(await namesIn(dir), before);
});

test("mergeLayers() does not change its sources", async (t) => {
  const dir = await temporaryDirectory(t);
  const sums = async () =>
    Promise.all(
      ["lower", "upper"].map(async (name) =>
        createHash("sha256")
          .update(await readFile(join(dir, name)))
          .digest("hex"),
      ),
    );
  await writeLayer(join(dir, "lower"), 4 * mib, new Map(run(0, 500, 1)));
  await writeLayer(join(dir, "upper"), 4 * mib, new Map(run(100, 500, 2)));
  const before = await sums();
  await mergeLayers(
    await openLayer(join(dir, "lower")),
    await openLayer(join(dir, "upper")),
    join(dir, "out"),
  );
  assert.deepEqual(await sums(), before);
});
