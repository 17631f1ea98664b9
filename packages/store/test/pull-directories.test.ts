import assert from "node:assert/strict";
import { readdir, utimes, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { test } from "node:test";
import type { Store } from "../src/store.ts";
import { makeSnapshot, openStore, reopen } from "./support.ts";

/** A transfer that wrote to its files so many hours ago. */
async function leavePull(store: Store, key: string, hours: { directory: number; journal: number }) {
  const dir = await store.staging(key);
  const ago = (count: number) => new Date(Date.now() - count * 3_600_000);
  await writeFile(join(dir, "memory-0"), Buffer.alloc(8192, 1));
  await writeFile(join(dir, "journal"), "x");
  for (const [name, count] of [
    ["memory-0", hours.directory],
    ["journal", hours.journal],
    [".", hours.directory],
  ] as const)
    await utimes(join(dir, name), ago(count), ago(count));
  return basename(dir);
}

test("removeIdle() removes what was not written to for a day, and says how much it was", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "py");
  const before = await readdir(store.root);
  const idle = await leavePull(store, "a", { directory: 30, journal: 25 });
  // Pages are written to files, which does not change the time of their directory.
  const running = await leavePull(store, "b", { directory: 30, journal: 1 });
  const found = await store.pulls.removeIdle({ dryRun: true });
  assert.deepEqual(
    found.map(({ name }) => name),
    [idle],
  );
  assert.ok((found[0]?.bytes ?? 0) >= 8192);
  assert.deepEqual((await readdir(store.root)).sort(), [idle, running, ...before].sort());
  assert.deepEqual(await store.pulls.removeIdle({ dryRun: false }), found);
  assert.deepEqual((await readdir(store.root)).sort(), [running, ...before].sort());
  assert.deepEqual(await store.pulls.removeIdle({ dryRun: false }), []);
});

test("removeIdle() keeps an old directory that a transfer has just taken into use", async (t) => {
  const store = await openStore(t);
  await leavePull(store, "a", { directory: 30, journal: 30 });
  const [dir] = await Promise.all([store.staging("a"), store.pulls.removeIdle({ dryRun: false })]);
  assert.deepEqual((await readdir(dir)).sort(), ["journal", "memory-0"]);
});

test("open() keeps what was continued within a week", async (t) => {
  const store = await openStore(t);
  const days = (count: number) => count * 24;
  const continued = await leavePull(store, "a", { directory: days(8), journal: days(2) });
  await leavePull(store, "b", { directory: days(8), journal: days(8) });
  await reopen(store);
  assert.deepEqual((await readdir(store.root)).sort(), [continued]);
});
