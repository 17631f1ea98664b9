import assert from "node:assert/strict";
import { readFile, rm, stat, truncate, utimes } from "node:fs/promises";
import { basename, join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { copyMemory } from "../src/copy-memory.ts";
import { encodeView, overlay as overlaySegments, segmentsOf } from "../src/memory-view.ts";
import { snapshotFile, type StoredSnapshot } from "../src/snapshot.ts";
import { Store } from "../src/store.ts";
import { viewNamePattern } from "../src/view-cache.ts";
import { fileEquals, overlay, randomNumbers, randomPages } from "./layer-model.ts";
import { cacheDirOf, flipByte, makeLayered, makeSnapshot, mib, namesIn, openStore } from "./support.ts";

const pageBytes = 4096;
const viewsOf = (store: Store) => `${cacheDirOf(store)}-views`;

/** What a VMM with this view has in its memory, read as docs/spec/memory-view.md says. */
async function memoryIn(path: string): Promise<{ memory: Buffer; segments: number; files: string[] }> {
  const view = await readFile(path);
  assert.equal(view.toString("latin1", 0, 8), "FKDMVIEW");
  assert.deepEqual([view.readUInt32LE(8), view.readUInt32LE(12)], [1, pageBytes]);
  assert.equal(Number(view.readBigUInt64LE(32)), view.length);
  const [files, segments] = [view.readUInt32LE(24), view.readUInt32LE(28)];
  const paths = view.toString("utf8", 64 + files * 40 + segments * 32).split("\0");
  assert.equal(paths.pop(), "");
  assert.equal(paths.length, files);
  const contents = await Promise.all(paths.map((each) => readFile(each)));
  for (const [index, each] of paths.entries()) {
    const facts = await stat(each, { bigint: true });
    const recorded = [0, 8, 16, 24].map((at) => view.readBigUInt64LE(64 + index * 40 + at));
    assert.deepEqual(recorded, [facts.dev, facts.ino, facts.size, facts.mtimeNs]);
    assert.equal(view.readUInt32LE(64 + index * 40 + 32), Buffer.byteLength(each));
  }
  const memory = Buffer.from(contents[0] ?? "");
  assert.equal(Number(view.readBigUInt64LE(16)), memory.length);
  let end = 0;
  for (let index = 0; index < segments; index++) {
    const at = 64 + files * 40 + index * 32;
    const [guest = 0, offset = 0, bytes = 0] = [0, 8, 16].map((each) =>
      Number(view.readBigUInt64LE(at + each)),
    );
    assert.ok(guest >= end && (guest | offset | bytes) % pageBytes === 0);
    contents[view.readUInt32LE(at + 24)]?.copy(memory, guest, offset, offset + bytes);
    end = guest + bytes;
  }
  return { memory, segments, files: paths };
}

const lower = new Map([
  [0, 0x10],
  [1, 0x11],
  [2, 0x12],
  [700, 0x13],
]);
const upper = new Map([
  [1, 0x21],
  [3, 0x22],
  [767, 0x23],
]);

async function family(t: TestContext, store?: Store) {
  const opened = store ?? (await openStore(t));
  const base = await makeSnapshot(opened, "base");
  const middle = await makeLayered(opened, "middle", base, lower);
  const top = await makeLayered(opened, "top", middle, upper);
  const expected = overlay(overlay(await readFile(snapshotFile(base, "memory")), lower), upper);
  return { store: opened, base, middle, top, expected };
}

async function viewOf(store: Store, snapshot: StoredSnapshot) {
  const { path, view } = await store.childMemory(snapshot, { views: true });
  assert.ok(view);
  assert.equal(view.path, path);
  assert.match(view.name, viewNamePattern);
  return view;
}

test("encodeView() writes the documented bytes", () => {
  const facts = (ino: bigint, size: bigint) =>
    ({ dev: 0xfe01n, ino, size, mtimeNs: 5_000_000_007n }) as never;
  const files = [
    { path: "/base", facts: facts(77n, 0x10000n) },
    { path: "/one", facts: facts(78n, 0x3010n) },
  ];
  const bytes = encodeView(files, [{ first: 1, count: 2, file: 1, at: 1 }]);
  const golden = [
    [
      "464b444d56494557",
      "01000000",
      "00100000",
      "0000010000000000",
      "02000000",
      "01000000",
      "bb00000000000000",
    ],
    ["00".repeat(24)],
    ["01fe000000000000", "4d00000000000000", "0000010000000000", "07f2052a01000000", "05000000", "00000000"],
    ["01fe000000000000", "4e00000000000000", "1030000000000000", "07f2052a01000000", "04000000", "00000000"],
    ["0010000000000000", "0010000000000000", "0020000000000000", "01000000", "00000000"],
    ["2f6261736500", "2f6f6e6500"],
  ];
  assert.equal(bytes.toString("hex"), golden.flat().join(""));
});

test("overlay() joins runs that are adjacent in memory and in the file, and no others", () => {
  const below = segmentsOf({ firsts: Uint32Array.of(0, 10), counts: Uint32Array.of(4, 6) }, 1);
  const above = segmentsOf({ firsts: Uint32Array.of(2, 12), counts: Uint32Array.of(1, 10) }, 2);
  assert.deepEqual(overlaySegments(below, above), [
    { first: 0, count: 2, file: 1, at: 1 },
    { first: 2, count: 1, file: 2, at: 1 },
    { first: 3, count: 1, file: 1, at: 4 },
    { first: 10, count: 2, file: 1, at: 5 },
    { first: 12, count: 10, file: 2, at: 2 },
  ]);
  assert.deepEqual(overlaySegments(below, []), below);
  assert.deepEqual(overlaySegments([], above), above);
});

test("childMemory() of a flat snapshot is its own file, and of a layered one a view without copies", async (t) => {
  const { store, base, middle, top, expected } = await family(t);
  assert.deepEqual(await store.childMemory(base, { views: true }), { path: snapshotFile(base, "memory") });
  const view = await viewOf(store, top);
  const { memory, segments, files } = await memoryIn(view.path);
  assert.ok(memory.equals(expected));
  // 0, 1 (upper), 2, 3 (upper), 700, 767 (upper)
  assert.equal(segments, 6);
  const layers = [middle, top].map((each) => snapshotFile(each, "layer"));
  assert.deepEqual(files, [snapshotFile(base, "memory"), ...layers]);
  assert.deepEqual(view.files, files);
  assert.deepEqual(await namesIn(cacheDirOf(store)), []);
  assert.equal((await viewOf(store, top)).name, view.name, "it is made once");
  const both = await Promise.all([viewOf(store, middle), viewOf(store, middle)]);
  assert.equal(both[0].name, both[1].name);
});

test("a view of a long chain equals the model, also from a kept image", async (t) => {
  const store = await openStore(t);
  let head: StoredSnapshot = await makeSnapshot(store, "s0");
  let expected: Buffer = await readFile(snapshotFile(head, "memory"));
  const random = randomNumbers(11);
  for (let depth = 1; depth < 12; depth++) {
    const pages = randomPages(random, 768, 20);
    head = await makeLayered(store, `s${depth}`, head, pages);
    expected = overlay(expected, pages);
    if (depth === 6) await store.keepImage(head);
    const { memory, files } = await memoryIn((await viewOf(store, head)).path);
    assert.ok(memory.equals(expected), `depth ${depth}`);
    if (depth === 6) assert.deepEqual(files, [join(head.dir, "flat")]);
  }
  const { chain, whole } = await store.memorySource(head);
  const layers = chain.slice(0, -1).map((each) => ({
    path: snapshotFile(each, "layer"),
    digest: each.manifest.files.layer?.digest ?? "",
  }));
  const copy = join(await temporaryDirectory(t), "memory");
  await copyMemory({ whole, layers: layers.toReversed() }, copy);
  assert.ok(await fileEquals(copy, expected));
});

test("childMemory() gives a flat image if a view has too many segments or views are not possible", async (t) => {
  const place = await temporaryDirectory(t);
  const options = { cacheDir: join(place, "cache", "memory"), maxViewSegments: 5 };
  const store = await Store.open(join(place, "snapshots"), options);
  const { middle, top, expected } = await family(t, store);
  for (let round = 0; round < 2; round++) {
    const { path, view } = await store.childMemory(top, { views: true });
    assert.equal(view, undefined);
    assert.ok(await fileEquals(path, expected));
  }
  assert.deepEqual(await namesIn(viewsOf(store)), []);
  await viewOf(store, middle);
  assert.equal((await store.childMemory(middle, { views: false })).view, undefined);
  // The whole memory is one file again.
  await store.keepImage(top);
  assert.equal((await memoryIn((await viewOf(store, top)).path)).segments, 0);
});

test("childMemory() refuses a damaged chain and leaves no files, also after a view was made", async (t) => {
  const { store, base, middle, top, expected } = await family(t);
  const table: [string, number, RegExp][] = [
    [snapshotFile(top, "layer"), 5000, /"top": file "layer" is damaged: chunk 0/],
    [snapshotFile(middle, "layer"), 5000, /file "layer" of its ancestor "middle" is damaged: chunk 0/],
    [snapshotFile(middle, "layer"), 10, /of its ancestor "middle" is damaged: it has version/],
    [snapshotFile(base, "memory"), 3, /file "memory" of its ancestor "base" differs/],
  ];
  for (const [path, at, problem] of table) {
    await flipByte(path, at);
    const before = await namesIn(viewsOf(store));
    await rejectsWith(store.childMemory(top, { views: true }), "snapshot_corrupt", problem);
    assert.deepEqual(await namesIn(viewsOf(store)), before);
    await flipByte(path, at);
    assert.ok((await memoryIn((await viewOf(store, top)).path)).memory.equals(expected));
  }
  await truncate(snapshotFile(base, "memory"), mib);
  await rejectsWith(store.childMemory(top, { views: true }), "snapshot_corrupt", /another size/);
  await rm(snapshotFile(middle, "layer"));
  await rejectsWith(store.childMemory(top, { views: true }), "snapshot_corrupt", /missing/);
});

test("a view that was changed is not used again", async (t) => {
  const { store, top, expected } = await family(t);
  const damages: ((path: string) => Promise<void>)[] = [
    (path) => flipByte(path, 70),
    (path) => truncate(path, 64),
    (path) => utimes(path, 1, 1),
    (path) => rm(path),
  ];
  for (const damage of damages) {
    const { path } = await viewOf(store, top);
    await damage(path);
    const next = await viewOf(store, top);
    assert.notEqual(next.path, path);
    assert.ok((await memoryIn(next.path)).memory.equals(expected));
  }
});

test("evict(), remove() and a later process keep only views that machines use", async (t) => {
  const place = await temporaryDirectory(t);
  const used = new Set<string>();
  const options = {
    cacheDir: join(place, "cache", "memory"),
    cacheLimits: { maxBytes: 1 << 30, isUsed: (id: string) => used.has(id) },
  };
  const store = await Store.open(join(place, "snapshots"), options);
  const { middle, top } = await family(t, store);
  const [kept, unused] = [await viewOf(store, top), await viewOf(store, middle)];
  used.add(top.id);
  assert.deepEqual(
    (await store.evict({ dryRun: true })).map(({ id }) => id),
    [middle.id],
  );
  assert.equal((await namesIn(viewsOf(store))).length, 2);
  assert.deepEqual(
    (await store.evict()).map(({ id }) => id),
    [middle.id],
  );
  assert.deepEqual(await namesIn(viewsOf(store)), [kept.name]);
  assert.notEqual((await viewOf(store, middle)).name, unused.name);

  const mappedViews = new Map([
    [kept.name, kept.stamp],
    [unused.name, unused.stamp],
  ]);
  const later = await Store.open(store.root, { ...options, mappedViews });
  assert.deepEqual(await namesIn(viewsOf(later)), [kept.name]);
  assert.equal(later.viewPath(kept.name), kept.path);
  const fresh = await viewOf(later, top);
  assert.notEqual(fresh.name, kept.name, "a view of an earlier process is only kept for its machine");
  await later.remove("top");
  assert.deepEqual(await namesIn(viewsOf(later)), [kept.name, fresh.name].sort());
  used.clear();
  await later.evict();
  assert.deepEqual(await namesIn(viewsOf(later)), []);
  assert.equal(basename(viewsOf(later)), "memory-views");
});
