/** Golden files of the format, and what the parts of it do on their own. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { decodeHeader, encodeHeader, paxSize } from "../src/file/tar.ts";
import { decodeMap, encodeMap, type PageMap } from "../src/format/page-map.ts";
import { ownSegments, segmentAt } from "../src/own-pages.ts";
import { fingerprint, PageTable } from "../src/pack/page-table.ts";

/** File 2 of a chain: 100 pages and a bit; three new pages, two of file 0, and one of the new ones again. */
const map: PageMap = {
  fileBytes: 100 * 4096 + 7,
  ownPages: 3,
  chunkLengths: Uint32Array.of(777),
  chunkDigests: Buffer.alloc(32, 0xab),
  runs: {
    pages: Uint32Array.of(5, 20, 22, 100),
    counts: Uint32Array.of(2, 2, 1, 1),
    sources: Uint32Array.of(2, 0, 2, 2),
    ranks: Uint32Array.of(0, 9, 2, 1),
  },
};
const golden = [
  "464b445041474553 01000000 00100000 0740060000000000 0300000000000000 01000000 04000000",
  "09030000",
  "ab".repeat(32),
  "05000000 0d000000 00000000 4d000000",
  "02000000 02000000 01000000 01000000",
  "00000000 02000000 00000000 00000000",
  "00000000 09000000 00000000 feffffff",
]
  .join("")
  .replaceAll(" ", "");
const expected = { file: 2, fileBytes: map.fileBytes, blobBytes: 777, ranks: [50, 0] };

test("encodeMap() writes the golden file, and decodeMap() reads it", () => {
  assert.equal(encodeMap(map, 2).toString("hex"), golden);
  assert.deepEqual(decodeMap(Buffer.from(golden, "hex"), expected), map);
});

test("encodeHeader() writes the golden header", () => {
  const header = encodeHeader(`blobs/sha256/${"0f".repeat(32)}`, 86_872_064);
  assert.equal(
    createHash("sha256").update(header).digest("hex"),
    "1d38b90eb70e7242c030d5e8a3660010fb2fee522a2d8defcfaa8e9b78721fcb",
  );
  assert.equal(
    header.toString("latin1", 100, 157),
    "0000644\x000000000\x000000000\x0000513310000\x0000000000000\x00021363\x00 0",
  );
});

test("headers keep lengths of any size", () => {
  for (const size of [0, 1, 8 ** 11 - 1, 8 ** 11, 2 ** 45]) {
    assert.deepEqual(decodeHeader(encodeHeader("index.json", size)), {
      name: "index.json",
      size,
      type: "file",
    });
  }
  assert.equal(decodeHeader(Buffer.alloc(512)), undefined);
});

test("paxSize() reads a length and refuses records that are cut", () => {
  assert.equal(paxSize(Buffer.from("11 size=42\n13 mtime=1.5\n")), 42);
  assert.equal(paxSize(Buffer.from("13 mtime=1.5\n")), undefined);
  for (const bad of ["99 size=42\n", "size=42", "3 a\n", "12 size=-42\n"]) {
    assert.throws(() => paxSize(Buffer.from(bad)), /pax header/);
  }
});

test("ownSegments() has each page of a blob once", () => {
  const segments = ownSegments(map.runs, 2);
  assert.deepEqual(segments, [
    { rank: 0, page: 5, count: 2 },
    { rank: 2, page: 22, count: 1 },
  ]);
  assert.deepEqual(segmentAt(segments, 1), segments[0]);
  assert.deepEqual(segmentAt(segments, 2), segments[1]);
  assert.equal(segmentAt(segments, 3), undefined);
});

test("PageTable finds what was added, also after it has grown", () => {
  const table = new PageTable();
  const words = new Int32Array(1024);
  const prints = Array.from({ length: 100_000 }, (_, index) => {
    words[index % 1024] = index;
    return fingerprint(words, 0);
  });
  for (const [index, print] of prints.entries()) if (table.find(print) === undefined) table.add(print, index);
  const found = prints.filter((print, index) => table.find(print) === index).length;
  assert.ok(found > 99_900, `${found} of ${prints.length} are found`);
});
