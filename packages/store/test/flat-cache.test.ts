import assert from "node:assert/strict";
import { readFile, rm, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { toAppError } from "@forkd/contract";
import { createLogger, type Logger } from "@forkd/base";
import { snapshotFile, type StoredSnapshot } from "../src/snapshot.ts";
import type { Store } from "../src/store.ts";
import { fileEquals, overlay, randomNumbers, randomPages } from "./layer-model.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import {
  branchFacts,
  cacheDirOf,
  fillLayer,
  flipByte,
  makeLayered,
  makeSnapshot,
  mib,
  namesIn,
  needsRoot,
  openAt,
  openStore,
  reopen,
  smallFileSystem,
} from "./support.ts";

const lower = new Map([
  [1, 0x11],
  [2, 0x12],
  [700, 0x13],
]);
const upper = new Map([
  [2, 0x22],
  [300, 0x23],
]);

type Family = { base: StoredSnapshot; middle: StoredSnapshot; top: StoredSnapshot; expected: Buffer };

async function makeFamily(store: Store): Promise<Family> {
  const base = await makeSnapshot(store, "base");
  const middle = await makeLayered(store, "middle", base, lower);
  const top = await makeLayered(store, "top", middle, upper);
  const expected = overlay(overlay(await readFile(snapshotFile(base, "memory")), lower), upper);
  return { base, middle, top, expected };
}

/** A logger that keeps its lines. */
function recorder(): { log: Logger; lines: string[] } {
  const lines: string[] = [];
  return {
    lines,
    log: createLogger({ level: "info", destination: { write: (line) => void lines.push(line) } }),
  };
}

async function prepared(t: TestContext): Promise<Family & { store: Store }> {
  const store = await openStore(t);
  return { store, ...(await makeFamily(store)) };
}

test("flatMemory() of a flat snapshot returns the snapshot's own file", async (t) => {
  const { store, base } = await prepared(t);
  assert.equal(await store.flatMemory(base), snapshotFile(base, "memory"));
});

test("flatMemory() builds an image once for concurrent callers", async (t) => {
  const { store, top, base, expected } = await prepared(t);
  const before = await readFile(snapshotFile(base, "memory"));
  const paths = await Promise.all([1, 2, 3].map(() => store.flatMemory(top)));
  const [path = ""] = paths;
  assert.equal(path, join(cacheDirOf(store), top.id));
  assert.deepEqual(new Set(paths).size, 1);
  assert.ok(await fileEquals(path, expected));
  const { ino } = await stat(path);
  assert.equal(await store.flatMemory(top), path);
  assert.equal((await stat(path)).ino, ino);
  assert.deepEqual(await namesIn(cacheDirOf(store)), [top.id]);
  assert.ok(await fileEquals(snapshotFile(base, "memory"), before), "the base is unchanged");
});

test("flatMemory() keeps holes", async (t) => {
  const { store, top } = await prepared(t);
  assert.ok((await stat(await store.flatMemory(top))).blocks * 512 < mib);
});

test("flatMemory() of a long chain equals the model", async (t) => {
  const store = await openStore(t);
  let head: StoredSnapshot = await makeSnapshot(store, "s0");
  let expected: Buffer = await readFile(snapshotFile(head, "memory"));
  const random = randomNumbers(7);
  for (let depth = 1; depth < 12; depth++) {
    const pages = randomPages(random, 768, 20);
    head = await makeLayered(store, `s${depth}`, head, pages);
    expected = overlay(expected, pages);
    if (depth % 4 === 0) await store.flatMemory(head);
  }
  assert.ok(await fileEquals(await store.flatMemory(head), expected));
});

test("flatMemory() starts from the nearest existing image", async (t) => {
  const { store, middle, top, expected } = await prepared(t);
  await store.flatMemory(middle);
  // Neither the base nor the layer below can be read now; their manifests can.
  const [, , base] = await store.chain(top);
  assert.ok(base);
  await rm(snapshotFile(base, "memory"));
  await rm(snapshotFile(middle, "layer"));
  assert.ok(await fileEquals(await store.flatMemory(top), expected));
});

test("a later process rebuilds every image from the chain", async (t) => {
  const { store, top, expected } = await prepared(t);
  const path = await store.flatMemory(top);
  await flipByte(path, 5);
  const later = await reopen(store);
  assert.deepEqual(await namesIn(cacheDirOf(store)), []);
  assert.equal(await later.flatMemory(top), path);
  assert.ok(await fileEquals(path, expected));
});

test("flatMemory() rebuilds a changed image from the chain and logs it", async (t) => {
  const store = await openStore(t);
  const { log, lines } = recorder();
  const later = await reopen(store, log);
  const { top, expected } = await makeFamily(later);
  const path = join(cacheDirOf(later), top.id);
  const damages: [string, () => Promise<void>][] = [
    ["flipped", () => flipByte(path, 5)],
    ["flipped in a hole", () => flipByte(path, 2 * mib)],
    ["cut", () => truncate(path, mib)],
    ["touched", () => utimes(path, 1, 1)],
  ];
  for (const [name, damage] of damages) {
    await later.flatMemory(top);
    lines.length = 0;
    await damage();
    assert.ok(await fileEquals(await later.flatMemory(top), expected), name);
    assert.match(lines.join("\n"), /cache\.changed/, name);
    assert.deepEqual(await namesIn(cacheDirOf(later)), [top.id], name);
  }
});

test("flatMemory() refuses a damaged chain and leaves no files", async (t) => {
  const { store, base, middle, top } = await prepared(t);
  const table: [string, number, RegExp][] = [
    [snapshotFile(top, "layer"), 5000, /"top": file "layer" is damaged: chunk 0/],
    [snapshotFile(middle, "layer"), 5000, /file "layer" of its ancestor "middle" is damaged: chunk 0/],
    [snapshotFile(middle, "layer"), 10, /of its ancestor "middle" is damaged: it has version/],
    [snapshotFile(base, "memory"), 3, /file "memory" of its ancestor "base" differs/],
  ];
  for (const [path, at, problem] of table) {
    await flipByte(path, at);
    await rejectsWith(store.flatMemory(top), "snapshot_corrupt", problem);
    assert.deepEqual(await namesIn(cacheDirOf(store)), []);
    await flipByte(path, at);
  }
  await store.flatMemory(top);
});

test("flatMemory() stops when cancelled and leaves no files", async (t) => {
  const { store, top, expected } = await prepared(t);
  const controller = new AbortController();
  const work = store.flatMemory(top, { signal: controller.signal });
  setImmediate(() => controller.abort());
  await assert.rejects(work, { name: "AbortError" });
  assert.deepEqual(await namesIn(cacheDirOf(store)), []);
  assert.ok(await fileEquals(await store.flatMemory(top), expected));
});

test("evict() removes unused images and stale temporary files", async (t) => {
  const used = new Set<string>();
  const limits = { maxBytes: 1 << 30, isUsed: (id: string) => used.has(id) };
  const store = await openAt(await temporaryDirectory(t), undefined, limits);
  const { middle, top } = await makeFamily(store);
  used.add(top.id);
  const dir = cacheDirOf(store);
  await Promise.all([store.flatMemory(middle), store.flatMemory(top)]);
  await writeFile(join(dir, ".flat-0123456789abcdef"), "of an earlier process");
  const { blocks } = await stat(join(dir, middle.id));
  const all = await namesIn(dir);
  const reported = await store.evict({ dryRun: true });
  assert.deepEqual(reported, [{ id: middle.id, bytes: blocks * 512 }]);
  assert.deepEqual(await namesIn(dir), all, "a dry run only reports");
  assert.deepEqual(await store.evict(), [{ id: middle.id, bytes: blocks * 512 }]);
  assert.deepEqual(await namesIn(dir), [top.id]);
  used.clear();
  assert.equal((await store.evict()).length, 1);
  await reopen(store);
  assert.deepEqual(await namesIn(dir), [], "a later process removes temporary files");
  await store.flatMemory(middle);
});

test("evict() with downTo removes the least recently used images first", async (t) => {
  const { store, middle, top } = await prepared(t);
  await store.flatMemory(middle);
  await store.flatMemory(top);
  await store.flatMemory(middle);
  const { blocks } = await stat(join(cacheDirOf(store), middle.id));
  const evicted = await store.evict({ downTo: blocks * 512 });
  assert.deepEqual(
    evicted.map(({ id }) => id),
    [top.id],
  );
  assert.deepEqual(await store.evict({ downTo: blocks * 512 }), []);
});

test("building an image evicts others above the limit, except the newest and those in use", async (t) => {
  const used = new Set<string>();
  const limits = { maxBytes: 1, isUsed: (id: string) => used.has(id) };
  const store = await openAt(await temporaryDirectory(t), undefined, limits);
  const { middle, top } = await makeFamily(store);
  await store.flatMemory(top);
  await store.flatMemory(middle);
  assert.deepEqual(await namesIn(cacheDirOf(store)), [middle.id]);
  used.add(middle.id);
  await store.flatMemory(top);
  assert.deepEqual(await namesIn(cacheDirOf(store)), [middle.id, top.id].sort());
  await store.remove("top");
  assert.deepEqual(await namesIn(cacheDirOf(store)), [middle.id]);
  await store.remove("middle");
  assert.deepEqual(await namesIn(cacheDirOf(store)), [middle.id], "it is in use");
});

test("evict() does not disturb builds in progress", async (t) => {
  const { store, middle, top, expected } = await prepared(t);
  for (let round = 0; round < 10; round++) {
    const work = store.flatMemory(round % 2 === 0 ? top : middle);
    await Promise.all([store.evict(), work, store.evict({ downTo: 1 })]);
  }
  assert.ok(await fileEquals(await store.flatMemory(top), expected));
});

test(
  "flatMemory() fails with disk_full on a full disk and keeps the snapshots unchanged",
  needsRoot,
  async (t) => {
    const place = await smallFileSystem(t, "8m");
    const store = await openAt(place);
    const base = await makeSnapshot(store, "base");
    await using draft = await store.draft("top");
    await fillLayer(draft, new Map(Array.from({ length: 600 }, (_, page) => [page, 9] as const)));
    const top = await draft.commit(branchFacts(base));
    const kept = await namesIn(place);
    await assert.rejects(writeFile(join(place, "ballast"), Buffer.alloc(8 * mib, 1)), { code: "ENOSPC" });
    await truncate(join(place, "ballast"), (await stat(join(place, "ballast"))).size - mib);
    const failure = await store.flatMemory(top).then(
      () => assert.fail("built on a full disk"),
      (error: unknown) => error,
    );
    assert.equal(toAppError(failure).code, "disk_full", String(failure));
    await rm(join(place, "ballast"));
    assert.deepEqual(await namesIn(place), kept);
    await store.verify(top, { always: true });
    await store.flatMemory(top);
  },
);
