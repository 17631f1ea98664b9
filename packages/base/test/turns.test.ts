import assert from "node:assert/strict";
import { test } from "node:test";
import { sortInTurns } from "../src/index.ts";

const byKey = (a: { key: number }, b: { key: number }): number => a.key - b.key;

for (const count of [0, 1, 4096, 4097, 8192, 50_000]) {
  test(`sortInTurns() sorts ${count} items as sort() does`, async () => {
    const items = Array.from({ length: count }, (_, index) => ({ key: (index * 7919) % 1009, index }));
    const expected = [...items].sort(byKey);
    await sortInTurns(items, byKey);
    assert.deepEqual(items, expected);
  });
}

test("sortInTurns() lets other work run while it sorts many items", async () => {
  const items = Array.from({ length: 20_000 }, (_, index) => ({ key: 20_000 - index }));
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  await sortInTurns(items, byKey);
  isDone = true;
  assert.ok(turns >= 5, `${turns} turns`);
});
