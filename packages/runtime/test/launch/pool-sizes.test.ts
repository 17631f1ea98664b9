import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger } from "@forkd/base";
import { Demand } from "../../src/launch/demand.ts";
import { PoolPins } from "../../src/launch/pool-pins.ts";
import { poolSizes } from "../../src/launch/pool-sizes.ts";

test("Demand.peak() is the most that was asked for within ten seconds, and is forgotten after ten minutes", () => {
  const demand = new Demand();
  assert.equal(demand.peak(0), 0);
  demand.add(3, 0);
  demand.add(2, 500);
  demand.add(4, 9_000);
  assert.equal(demand.peak(9_000), 9);
  demand.add(1, 20_000);
  assert.equal(demand.peak(20_000), 9);
  demand.add(1, 300_000);
  assert.equal(demand.peak(609_500), 1);
  assert.equal(demand.peak(2_000_000), 0);
});

test("Demand counts children that are asked for one after the other as a burst", () => {
  const demand = new Demand();
  for (let at = 0; at < 60_000; at += 100) demand.add(1, at);
  assert.equal(demand.peak(60_000), 100);
});

const wish = { pinned: undefined, peak: 0, lastUsed: 0, childMib: 10 };

test("poolSizes() gives the budget to the most recently used first, beside what operators have set", () => {
  assert.deepEqual(poolSizes([], 100), []);
  assert.deepEqual(
    poolSizes(
      [
        { ...wish, peak: 8, lastUsed: 1 },
        { ...wish, peak: 6, lastUsed: 2 },
        { ...wish, pinned: 1, peak: 50 },
        { ...wish, peak: 0, lastUsed: 9 },
      ],
      100,
    ),
    [3, 6, 1, 0],
  );
});

test("poolSizes() keeps what operators have set above the budget, and gives nothing else then", () => {
  const sizes = poolSizes(
    [
      { ...wish, pinned: 20 },
      { ...wish, peak: 5 },
    ],
    100,
  );
  assert.deepEqual(sizes, [20, 0]);
});

test("PoolPins keeps numbers on disk, and does not use a file that it cannot read", async () => {
  const dir = await mkdtemp(join(tmpdir(), "forkd-pins-"));
  try {
    const path = join(dir, "pool.json");
    const pins = await PoolPins.open(path, nullLogger());
    await pins.set("a", 3);
    await pins.set("b", 0);
    await pins.set("c", 1);
    await pins.set("c", undefined);
    const again = await PoolPins.open(path, nullLogger());
    assert.deepEqual(
      [...again.all],
      [
        ["a", 3],
        ["b", 0],
      ],
    );
    assert.deepEqual(JSON.parse(await readFile(path, "utf8")), { version: 1, ready: { a: 3, b: 0 } });
    for (const content of ["{", '{"version": 2, "ready": {}}', '{"version": 1, "ready": {"a": -1}}']) {
      await writeFile(path, content);
      assert.equal((await PoolPins.open(path, nullLogger())).all.size, 0, content);
    }
  } finally {
    await rm(dir, { recursive: true });
  }
});
