import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { open, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { digestFile } from "../src/digest.ts";
import { touchedChunks } from "../src/touched-chunks.ts";
import { temporaryDirectory } from "@forkd/test-support";
import { mib } from "./support.ts";

const sha256 = (bytes: Uint8Array): Buffer => createHash("sha256").update(bytes).digest();
const zeroDigest = Buffer.alloc(32);

test("touchedChunks() returns each chunk once and in order", () => {
  const table: [{ start: number; end: number }[], number[]][] = [
    [[], []],
    [[{ start: 0, end: 0 }], []],
    [[{ start: 0, end: 1 }], [0]],
    [[{ start: 0, end: 10 }], [0]],
    [[{ start: 0, end: 11 }], [0, 1]],
    [[{ start: 9, end: 10 }], [0]],
    [[{ start: 10, end: 11 }], [1]],
    [[{ start: 9, end: 11 }], [0, 1]],
    [[{ start: 35, end: 36 }], [3]],
    [
      [
        { start: 0, end: 2 },
        { start: 4, end: 6 },
        { start: 8, end: 12 },
      ],
      [0, 1],
    ],
    [
      [
        { start: 5, end: 25 },
        { start: 29, end: 31 },
        { start: 60, end: 70 },
      ],
      [0, 1, 2, 3, 6],
    ],
  ];
  for (const [ranges, expected] of table) {
    assert.deepEqual(touchedChunks(ranges, 10), expected, JSON.stringify(ranges));
  }
});

test("digestFile() hashes the digests of the chunks, with 32 zero bytes for a chunk of zeros", async (t) => {
  const path = join(await temporaryDirectory(t), "file");
  const first = Buffer.alloc(mib, "a");
  const zeros = Buffer.alloc(mib);
  const partial = Buffer.from("the last chunk is short");
  const table: [Buffer[], Buffer[]][] = [
    [[], []],
    [[first], [sha256(first)]],
    [[zeros], [zeroDigest]],
    [[partial], [sha256(partial)]],
    [
      [first, zeros, partial],
      [sha256(first), zeroDigest, sha256(partial)],
    ],
    [
      [first, Buffer.alloc(5)],
      [sha256(first), zeroDigest],
    ],
  ];
  for (const [chunks, digests] of table) {
    await writeFile(path, Buffer.concat(chunks));
    assert.deepEqual(await digestFile(path), {
      bytes: Buffer.concat(chunks).length,
      digest: sha256(Buffer.concat(digests)).toString("hex"),
    });
  }
});

test("digestFile() gives the same digest for a sparse file and its dense copy", async (t) => {
  const dir = await temporaryDirectory(t);
  for (const [name, size] of [
    ["whole", 8 * mib],
    ["cut inside a chunk", 8 * mib - 4096],
    ["cut inside a sector", 8 * mib + 77],
  ] as const) {
    const sparse = join(dir, name);
    const dense = `${sparse}, dense`;
    {
      await using file = await open(sparse, "wx");
      await file.truncate(size);
      for (const at of [5, 3 * mib - 2, 6 * mib, size - 4]) await file.write("data", at);
    }
    await runProgram("cp", ["--sparse=never", sparse, dense]);
    const holes = await stat(sparse);
    assert.ok(holes.blocks * 512 < size, "the file system keeps holes");
    assert.ok((await stat(dense)).blocks * 512 >= size, "the copy has none");
    assert.deepEqual(await digestFile(sparse), await digestFile(dense), name);
  }
});

test("digestFile() counts the chunks of a file that is one hole", async (t) => {
  const path = join(await temporaryDirectory(t), "hole");
  await writeFile(path, "");
  await truncate(path, 3 * mib + 1);
  assert.deepEqual(await digestFile(path), {
    bytes: 3 * mib + 1,
    digest: sha256(Buffer.concat(Array(4).fill(zeroDigest))).toString("hex"),
  });
});

test("digestFile() depends on the length, not only on the content", async (t) => {
  const path = join(await temporaryDirectory(t), "zeros");
  await writeFile(path, Buffer.alloc(2 * mib));
  const two = await digestFile(path);
  await truncate(path, 2 * mib + 1);
  assert.notEqual((await digestFile(path)).digest, two.digest);
});
