import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@forkd/test-support";
import { CachedValue } from "../src/cached-value.ts";

test("CachedValue makes a value once for all callers and keeps it", async () => {
  let made = 0;
  const kept = new CachedValue(async () => ++made);
  assert.deepEqual(await Promise.all([kept.fresh(0), kept.fresh(0), kept.known(0)]), [1, 1, 1]);
  assert.equal(await kept.fresh(60_000), 1);
  assert.equal(await kept.known(0), 1, "the old one, while a new one is made");
  await until("it is made again", () => made === 2);
  assert.equal(await kept.fresh(0), 3);
  let fails = true;
  const failing = new CachedValue(async () => (fails ? Promise.reject(new Error("no")) : 1));
  await assert.rejects(failing.fresh(0), /no/);
  fails = false;
  assert.equal(await failing.known(0), 1);
});
