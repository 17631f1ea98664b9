import assert from "node:assert/strict";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { createOverlay, emptyOverlay } from "../../src/disk/overlay.ts";
import { temporaryDirectory } from "@forkd/test-support";

const mib = 1 << 20;
const clusterBytes = 65_536;

test("emptyOverlay() writes the header of a version 3 image without a backing name", () => {
  const { length, pieces } = emptyOverlay(4096 * mib);
  assert.equal(length, 4 * clusterBytes);
  assert.deepEqual(
    pieces.map(([offset]) => offset),
    [0, clusterBytes, 2 * clusterBytes],
  );
  const header = pieces[0]?.[1] ?? Buffer.alloc(0);
  assert.equal(header.toString("latin1", 0, 4), "QFI\xfb");
  assert.equal(header.readUInt32BE(4), 3, "version");
  assert.equal(header.readBigUInt64BE(8), 0n, "backing file");
  assert.equal(header.readUInt32BE(20), 16, "cluster bits");
  assert.equal(header.readBigUInt64BE(24), 4096n * BigInt(mib), "virtual size");
  assert.equal(header.readUInt32BE(36), 8, "L1 entries of 512 MiB each");
  assert.equal(header.readBigUInt64BE(72), 0n, "incompatible features");
  assert.deepEqual([...(pieces[2]?.[1] ?? [])], [0, 1, 0, 1, 0, 1, 0, 1], "each cluster is used once");
});

test("emptyOverlay() rounds the L1 table up", () => {
  for (const [size, entries] of [
    [512, 1],
    [512 * mib, 1],
    [512 * mib + 512, 2],
    [2 ** 42, 8192],
  ] as const) {
    assert.equal(emptyOverlay(size).pieces[0]?.[1].readUInt32BE(36), entries, String(size));
  }
});

test("emptyOverlay() refuses invalid disk sizes", () => {
  for (const size of [0, -512, 511, 513, 2 ** 42 + 512, Number.NaN]) {
    assert.throws(() => emptyOverlay(size), RangeError, String(size));
  }
});

test("createOverlay() makes an image that passes qemu-img check", async (t) => {
  const dir = await temporaryDirectory(t);
  for (const bytes of [512, 10 * mib, 3 * 1024 * mib + 512, 2 ** 42]) {
    const path = join(dir, String(bytes));
    await createOverlay(path, bytes);
    const { stdout: check } = await runProgram("qemu-img", ["check", "-f", "qcow2", "--output=json", path]);
    assert.equal(JSON.parse(check)["check-errors"], 0);
    assert.equal(JSON.parse(check)["leaks"], undefined);
    const { stdout } = await runProgram("qemu-img", ["info", "-f", "qcow2", "--output=json", path]);
    const info = JSON.parse(stdout);
    assert.equal(info["virtual-size"], bytes);
    assert.equal(info["backing-filename"], undefined);
    assert.ok((await stat(path)).blocks * 512 <= 4 * 4096, "the file keeps its holes");
    assert.equal((await stat(path)).mode & 0o777, 0o600);
  }
});

test("createOverlay() does not overwrite a file", async (t) => {
  const path = join(await temporaryDirectory(t), "disk");
  await writeFile(path, "precious");
  await assert.rejects(createOverlay(path, mib), { code: "EEXIST" });
  assert.equal(await readFile(path, "utf8"), "precious");
});

test("createOverlay() makes an overlay that shows the layer below and keeps writes in itself", async (t) => {
  const dir = await temporaryDirectory(t);
  const [base, overlay, copy] = ["base", "overlay", "copy"].map((name) => join(dir, name)) as [
    string,
    string,
    string,
  ];
  const content = Buffer.alloc(2 * mib, "the layer below. ");
  await writeFile(base, content);
  await createOverlay(overlay, content.length);
  const options = `driver=qcow2,file.filename=${overlay},backing.driver=raw,backing.read-only=on,backing.file.filename=${base}`;
  const flatten = async (): Promise<Buffer> => {
    await runProgram("qemu-img", ["convert", "--image-opts", options, "-O", "raw", copy]);
    return readFile(copy);
  };
  assert.ok(content.equals(await flatten()));
  await runProgram("qemu-io", ["--image-opts", options, "-c", "write -P 0x2a 1M 4k"]);
  const expected = Buffer.from(content);
  expected.fill(0x2a, mib, mib + 4096);
  assert.ok(expected.equals(await flatten()));
  assert.ok(content.equals(await readFile(base)), "the layer below is unchanged");
  await runProgram("qemu-img", ["check", "-f", "qcow2", overlay]);
});
