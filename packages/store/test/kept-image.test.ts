import assert from "node:assert/strict";
import { readdir, readFile, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { maxChainDepth } from "../src/chain.ts";
import { snapshotFile, type StoredSnapshot } from "../src/snapshot.ts";
import type { Store } from "../src/store.ts";
import { fileEquals, overlay } from "./layer-model.ts";
import { rejectsWith } from "@forkd/test-support";
import { flipByte, makeLayered, makeSnapshot, openStore, reopen } from "./support.ts";

type Chain = { store: Store; head: StoredSnapshot; expected: Buffer };

async function grow({ store, head, expected }: Chain, count: number): Promise<Chain> {
  const from = Number(head.tag.slice(1)) + 1;
  for (let depth = from; depth < from + count; depth++) {
    const pages = new Map([
      [depth % 700, depth % 251],
      [5, (depth % 200) + 1],
    ]);
    head = await makeLayered(store, `s${depth}`, head, pages);
    expected = overlay(expected, pages);
  }
  return { store, head, expected };
}

async function chainOf(t: TestContext, length: number): Promise<Chain> {
  const store = await openStore(t);
  const head = await makeSnapshot(store, "s0");
  const expected = await readFile(snapshotFile(head, "memory"));
  return grow({ store, head, expected }, length - 1);
}

test("keepImage() makes a chain short without changing the snapshot, and the chain grows on", async (t) => {
  const first = await chainOf(t, maxChainDepth);
  const { store, head } = first;
  assert.equal((await store.memorySource(head)).chain.length, maxChainDepth);
  assert.equal(await store.keepImage(head), true);
  assert.equal(await store.keepImage(head), false, "once is enough");
  assert.deepEqual(await store.get(head.tag), head);
  assert.equal((await store.memorySource(head)).chain.length, 1);
  const second = await grow(first, maxChainDepth - 1);
  assert.equal((await store.memorySource(second.head)).chain.length, maxChainDepth);
  const chain = await store.chain(second.head);
  assert.equal(chain.length, 2 * maxChainDepth - 1, "every ancestor is known");
  await store.verify(second.head, { always: true });
  const later = await reopen(store);
  for (const each of [first, second])
    assert.ok(await fileEquals(await later.flatMemory(await later.get(each.head.tag)), each.expected));
  const beyond = await grow(second, 1);
  await rejectsWith(store.chain(beyond.head), "snapshot_corrupt", /chain is longer than 32 snapshots/);
});

test("keepImage() writes no second copy of an image that is cached", async (t) => {
  const { store, head } = await chainOf(t, 4);
  const cached = await stat(await store.flatMemory(head));
  await store.keepImage(head);
  assert.equal((await stat(join(head.dir, "flat"))).ino, cached.ino);
  await store.evict();
  assert.equal((await stat(await store.flatMemory(head))).ino, cached.ino, "nor a third one");
});

test("an image that is damaged, missing or of another snapshot is not used", async (t) => {
  const { store, head, expected } = await chainOf(t, 4);
  const image = join(head.dir, "flat");
  const record = join(head.dir, "flat.json");
  const damages: [string, () => Promise<void>, number][] = [
    ["flipped", () => flipByte(image, 5 * 4096), 4],
    ["missing", () => rm(image), 4],
    ["the record is missing", () => rm(record), 4],
    ["the record is text", () => writeFile(record, "x"), 4],
    [
      "the record is of another",
      async () => {
        const text = await readFile(record, "utf8");
        await writeFile(record, text.replace(head.id, "0".repeat(64)));
      },
      4,
    ],
  ];
  for (const [name, damage, length] of damages) {
    await store.keepImage(head);
    assert.equal((await store.memorySource(head)).chain.length, 1, name);
    await damage();
    const later = await reopen(store);
    const again = await later.get(head.tag);
    assert.equal((await later.memorySource(again)).chain.length, length, name);
    assert.ok(await fileEquals(await later.flatMemory(again), expected), name);
    await later.evict();
  }
});

test("verify() with always finds an image that was damaged unnoticed", async (t) => {
  const { store, head } = await chainOf(t, 4);
  await store.keepImage(head);
  const image = join(head.dir, "flat");
  const { atime, mtime } = await stat(image);
  await flipByte(image, 5 * 4096);
  await utimes(image, atime, mtime);
  await store.verify(head, { always: true });
  assert.equal((await store.memorySource(head)).chain.length, 4);
});

test("a long chain can be read without its images", async (t) => {
  const first = await chainOf(t, maxChainDepth);
  await first.store.keepImage(first.head);
  const { store, head, expected } = await grow(first, 3);
  await rm(join(first.head.dir, "flat"));
  const later = await reopen(store);
  assert.ok(await fileEquals(await later.flatMemory(await later.get(head.tag)), expected));
});

test("keepImage() that is cancelled or fails leaves nothing", async (t) => {
  const { store, head } = await chainOf(t, 4);
  const names = await readdir(head.dir);
  await assert.rejects(store.keepImage(head, { signal: AbortSignal.abort(new Error("enough")) }), /enough/);
  assert.deepEqual(await readdir(head.dir), names);
  await store.remove(head.tag);
  await assert.rejects(store.keepImage(head));
});
