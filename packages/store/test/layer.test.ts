import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { copyFile, open, readFile, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { toAppError } from "@forkd/contract";
import { finishLayer } from "../src/finish-layer.ts";
import { encodeExtent, extentBytes, headerBytes, pageBytes } from "../src/layer-format.ts";
import { applyLayer, openLayer, verifyLayer } from "../src/layer.ts";
import { fileEquals, overlay, randomNumbers, randomPages, writeLayer, writePages } from "./layer-model.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { flipByte, mib, namesIn, needsRoot, smallFileSystem } from "./support.ts";

/** Zeros with the listed pieces [offset, hex] written to them. */
function goldenBytes(length: number, pieces: [number, string][]): Buffer {
  const bytes = Buffer.alloc(length);
  for (const [at, hex] of pieces) Buffer.from(hex.replaceAll(" ", ""), "hex").copy(bytes, at);
  return bytes;
}

/** Pages 1, 2 and 5 of a memory of 64 KiB, each filled with its number plus 0xa0. */
const golden = goldenBytes(16448, [
  [0, "464b444c41594552 01000000 00100000"],
  [16, "0000010000000000 0300000000000000 0200000000000000"],
  [40, "0010000000000000 0040000000000000 2040000000000000"],
  [64, "0000100000000000 4040000000000000"],
  [80, "6e701d8c8f5f6a08f9f3eb9d7dbf38797ea3f0049a98173c7bba08a22fce00ea"],
  [4096, "a1".repeat(4096) + "a2".repeat(4096) + "a5".repeat(4096)],
  [16384, "0100000000000000 02000000 00000000 0500000000000000 01000000 00000000"],
  [16416, "7e705539f64d6e4c3b48cadc1e95123d9cdc8cdd60ffdaf48b2422ce61f36f76"],
]);
const goldenPages = new Map([
  [1, 0xa1],
  [2, 0xa2],
  [5, 0xa5],
]);

test("finishLayer() writes the bytes of the specification", async (t) => {
  const path = join(await temporaryDirectory(t), "layer");
  const shape = await writePages(path, 65536, goldenPages);
  assert.deepEqual(shape, { memoryBytes: 65536, pages: 3, extents: 2 });
  const finished = await finishLayer(path, shape);
  assert.equal((await readFile(path)).toString("hex"), golden.toString("hex"));
  assert.deepEqual(finished, { bytes: 16448, digest: golden.toString("hex", 80, 112), pages: 3 });
});

test("openLayer() reads the bytes of the specification", async (t) => {
  const path = join(await temporaryDirectory(t), "layer");
  await writeFile(path, golden);
  const digest = golden.toString("hex", 80, 112);
  const layer = await openLayer(path, digest);
  assert.deepEqual(
    { ...layer, extents: [[...layer.extents.firsts], [...layer.extents.counts]], chunkDigests: undefined },
    {
      path,
      bytes: 16448,
      digest,
      memoryBytes: 65536,
      pages: 3,
      extents: [
        [1, 5],
        [2, 1],
      ],
      chunkDigests: undefined,
    },
  );
  await verifyLayer(layer);
  await rejectsWith(openLayer(path, "0".repeat(64)), "snapshot_corrupt", /it is not the expected layer/);
});

test("applyLayer() writes the pages to a flat image, for many sets of pages", async (t) => {
  const dir = await temporaryDirectory(t);
  const memoryPages = 2048;
  for (let seed = 0; seed < 24; seed++) {
    const random = randomNumbers(seed);
    const pages = randomPages(random, memoryPages, seed === 0 ? 0 : 1 + random(60));
    const flat = Buffer.alloc(memoryPages * pageBytes, random(256));
    const path = join(dir, `layer-${seed}`);
    const target = join(dir, `flat-${seed}`);
    await writeFile(target, flat);
    const { digest } = await writeLayer(path, flat.length, pages);
    const layer = await openLayer(path, digest);
    await verifyLayer(layer);
    await applyLayer(layer, target);
    assert.ok(await fileEquals(target, overlay(flat, pages)), `seed ${seed}`);
  }
});

test("a layer may have all pages or none", async (t) => {
  const dir = await temporaryDirectory(t);
  const every = new Map(Array.from({ length: 512 }, (_, page) => [page, page % 256] as const));
  for (const [name, pages] of [["every", every] as const, ["none", new Map<number, number>()] as const]) {
    const target = join(dir, `flat of ${name}`);
    await writeFile(target, Buffer.alloc(2 * mib, 9));
    const { digest, bytes } = await writeLayer(join(dir, name), 2 * mib, pages);
    assert.equal((await stat(join(dir, name))).size, bytes);
    await applyLayer(await openLayer(join(dir, name), digest), target);
    assert.ok(await fileEquals(target, overlay(Buffer.alloc(2 * mib, 9), pages)));
  }
});

/** 700 pages in 3 extents: three chunks of data, the last one short. */
const threeChunks = new Map<number, number>([
  ...Array.from({ length: 100 }, (_, index) => [index, 1] as const),
  ...Array.from({ length: 599 }, (_, index) => [200 + index, 2] as const),
  [900, 3],
]);
const dataEnd = headerBytes + 700 * pageBytes;

test("openLayer() refuses a layer that was truncated anywhere or is longer", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "layer");
  const { digest, bytes } = await writeLayer(path, 4 * mib, threeChunks);
  assert.equal(bytes, dataEnd + 3 * extentBytes + 3 * 32);
  const lengths = [0, 1, 7, 8, 79, 80, 112, 4095, 4096, 4097, headerBytes + mib, dataEnd - 1, dataEnd];
  const more = [
    dataEnd + 8,
    dataEnd + 16,
    dataEnd + 48,
    dataEnd + 49,
    bytes - 32,
    bytes - 1,
    bytes + 1,
    bytes + 32,
  ];
  for (const length of [...lengths, ...more]) {
    const cut = join(dir, `cut to ${length}`);
    await copyFile(path, cut);
    await truncate(cut, length);
    await rejectsWith(
      openLayer(cut, digest),
      "snapshot_corrupt",
      /Cannot use the memory layer: (it has only|its header says)/,
    );
  }
});

test("openLayer() or verifyLayer() finds a changed byte in any region", async (t) => {
  const path = join(await temporaryDirectory(t), "layer");
  const { digest, bytes } = await writeLayer(path, 4 * mib, threeChunks);
  const header = [0, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 79, 80, 111, 112, 4095];
  const tables = [dataEnd, dataEnd + 8, dataEnd + 12, dataEnd + 47, dataEnd + 48, bytes - 1];
  for (const at of [...header, ...tables]) {
    await flipByte(path, at);
    await rejectsWith(openLayer(path, digest), "snapshot_corrupt", /Cannot use the memory layer/);
    await flipByte(path, at);
  }
  for (const [chunk, at] of [
    [0, headerBytes],
    [0, headerBytes + mib - 1],
    [1, headerBytes + mib],
    [2, dataEnd - 1],
  ] as const) {
    await flipByte(path, at);
    const layer = await openLayer(path, digest);
    await rejectsWith(
      verifyLayer(layer),
      "snapshot_corrupt",
      new RegExp(`chunk ${chunk} of its pages differs`),
    );
    await flipByte(path, at);
  }
  await verifyLayer(await openLayer(path, digest));
});

test("openLayer() refuses wrong numbers that match their digest", async (t) => {
  const dir = await temporaryDirectory(t);
  const u64 = (value: bigint) => Buffer.from(new BigUint64Array([value]).buffer);
  const table: [string, [number, Buffer][], RegExp][] = [
    ["magic", [[0, Buffer.from("FKDLAYE2")]], /it is not a layer/],
    ["unfinished", [[0, Buffer.alloc(8)]], /never finished/],
    ["version", [[8, Buffer.from([2])]], /version 2, not 1/],
    ["page size", [[13, Buffer.from([32])]], /pages have 8192 bytes/],
    ["no memory", [[16, u64(0n)]], /memory of 0 bytes/],
    ["odd memory", [[16, u64(65535n)]], /memory of 65535 bytes/],
    ["huge memory", [[16, u64(1n << 44n)]], /memory of \d+ bytes/],
    ["memory of 2^60", [[16, u64(1n << 60n)]], /number at 16/],
    ["more pages than memory", [[16, u64(8192n)]], /3 pages, more than the memory/],
    ["many pages", [[24, u64(1n << 40n)]], /more than the memory/],
    ["no extents", [[32, u64(0n)]], /0 extents for 3 pages/],
    ["many extents", [[32, u64(4n)]], /4 extents for 3 pages/],
    ["data offset", [[40, u64(8192n)]], /offsets/],
    ["extent table offset", [[48, u64(1n << 52n)]], /offsets/],
    ["digest table offset", [[56, u64(0n)]], /offsets/],
    ["chunk size", [[64, u64(1n << 21n)]], /offsets/],
    ["file length", [[72, u64(16449n)]], /offsets/],
    ["bytes after the header", [[112, Buffer.from([1])]], /not zero after the digest/],
    ["empty extent", [[16392, Buffer.alloc(4)]], /extent 0 of its table is empty/],
    ["reserved", [[16396, Buffer.from([1])]], /must be zero/],
    ["after the memory", [[16400, u64(16n)]], /extent 1 of its table ends after/],
    ["far after", [[16400, u64((1n << 32n) + 5n)]], /extent 1 of its table ends after/],
    ["adjacent", [[16400, u64(3n)]], /extent 1 of its table does not start after/],
    ["overlapping", [[16400, u64(2n)]], /extent 1 of its table does not start after/],
    ["descending", [[16400, u64(0n)]], /extent 1 of its table does not start after/],
    ["count", [[16408, Buffer.from([2])]], /hold 4 pages, but its header says 3/],
  ];
  for (const [name, patches, problem] of table) {
    const bytes = Buffer.from(golden);
    for (const [at, patch] of patches) patch.copy(bytes, at);
    const digest = createHash("sha256").update(bytes.subarray(0, 80)).update(bytes.subarray(16384)).digest();
    digest.copy(bytes, 80);
    const path = join(dir, name);
    await writeFile(path, bytes);
    await rejectsWith(openLayer(path, digest.toString("hex")), "snapshot_corrupt", problem);
  }
});

test("applyLayer() refuses an image with another length and stops at a damaged chunk", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "layer");
  const target = join(dir, "flat");
  const { digest } = await writeLayer(path, 4 * mib, threeChunks);
  await writeFile(target, Buffer.alloc(4 * mib - 4096));
  await rejectsWith(applyLayer(await openLayer(path, digest), target), "snapshot_corrupt", /image has/);
  await truncate(target, 4 * mib);
  await flipByte(path, headerBytes + 5);
  await rejectsWith(applyLayer(await openLayer(path, digest), target), "snapshot_corrupt", /chunk 0/);
  assert.ok(await fileEquals(target, Buffer.alloc(4 * mib)), "no part of that chunk was written");
});

test("finishLayer() refuses a file that does not match its options", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "layer");
  const shape = await writePages(path, 65536, goldenPages);
  const before = await readFile(path);
  await rejectsWith(
    finishLayer(path, { ...shape, pages: 2 }),
    "snapshot_corrupt",
    /2 pages in 2 extents need/,
  );
  await rejectsWith(finishLayer(path, { ...shape, memoryBytes: 5 * 4096 }), "snapshot_corrupt", /ends after/);
  await rejectsWith(finishLayer(path, { ...shape, memoryBytes: 5 }), "snapshot_corrupt", /memory of 5 bytes/);
  await assert.rejects(finishLayer(path, { ...shape, signal: AbortSignal.abort() }), { name: "AbortError" });
  assert.ok((await readFile(path)).equals(before), "a refused file is unchanged");
  {
    await using file = await open(path, "r+");
    const entry = Buffer.alloc(extentBytes);
    encodeExtent(entry, 0, 2, 1);
    await file.write(entry, 0, extentBytes, 16400);
  }
  await rejectsWith(finishLayer(path, shape), "snapshot_corrupt", /extent 1 of its table does not start/);
  await writeFile(path, before);
  await finishLayer(path, shape);
  await truncate(path, before.length);
  await rejectsWith(finishLayer(path, shape), "snapshot_corrupt", /has a header already/);
});

test("finishLayer() fails with disk_full on a full disk and leaves no layer", needsRoot, async (t) => {
  const place = await smallFileSystem(t, "2m");
  const path = join(place, "layer");
  // The digest table needs the page that comes after the last extent.
  const pages = new Map(Array.from({ length: 256 }, (_, index) => [index * 2, 7] as const));
  const shape = await writePages(path, 8 * mib, pages);
  const before = await readFile(path);
  await assert.rejects(writeFile(join(place, "ballast"), Buffer.alloc(2 * mib, 1)), { code: "ENOSPC" });
  const failure = await finishLayer(path, shape).then(
    () => assert.fail("finished without room"),
    (error: unknown) => error,
  );
  assert.equal(toAppError(failure).code, "disk_full", String(failure));
  assert.ok((await readFile(path)).equals(before));
  await rejectsWith(openLayer(path), "snapshot_corrupt", /never finished/);
  assert.deepEqual(await namesIn(place), ["ballast", "layer"]);
});
