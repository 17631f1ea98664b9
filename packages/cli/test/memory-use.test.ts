import assert from "node:assert/strict";
import { test } from "node:test";
import { parseSmapsRollup, readMemoryUse } from "../src/memory-use.ts";

test("parseSmapsRollup() adds clean and dirty pages", () => {
  const text =
    "5 ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nShared_Clean:   100 kB\nShared_Dirty: 1 kB\nPrivate_Clean:  20 kB\nPrivate_Dirty: 3 kB\n";
  assert.deepEqual(parseSmapsRollup(text), { privateKib: 23, sharedKib: 101 });
});

test("readMemoryUse() is undefined for a process that is not there", async () => {
  assert.equal(await readMemoryUse(undefined), undefined);
  assert.equal(await readMemoryUse(2 ** 30), undefined);
});
