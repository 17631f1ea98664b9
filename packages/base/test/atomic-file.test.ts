import assert from "node:assert/strict";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { isErrno, readJson, removeTree, writeFileAtomic } from "../src/atomic-file.ts";
import { temporaryDirectory } from "@forkd/test-support";

test("writeFileAtomic() writes text and bytes, replaces an existing file and leaves no other file", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "file");
  await writeFileAtomic(path, "first, which is longer");
  await writeFileAtomic(path, "zweité");
  assert.equal(await readFile(path, "utf8"), "zweité");
  await writeFileAtomic(path, Buffer.from([0, 255, 1]));
  assert.deepEqual([...(await readFile(path))], [0, 255, 1]);
  assert.deepEqual(await readdir(dir), ["file"]);
});

test("writeFileAtomic() sets the mode, also when it replaces a file with another mode", async (t) => {
  const path = join(await temporaryDirectory(t), "secret");
  await writeFile(path, "open to all", { mode: 0o644 });
  await writeFileAtomic(path, "token", 0o600);
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  await writeFileAtomic(path, "text", 0o644);
  assert.equal((await stat(path)).mode & 0o777, 0o644 & ~process.umask());
  await writeFileAtomic(path, "text");
  assert.equal((await stat(path)).mode & 0o777, 0o600);
});

test("writeFileAtomic() removes its temporary file when it fails", async (t) => {
  const dir = await temporaryDirectory(t);
  // A directory that is not empty cannot be replaced by a file.
  await mkdir(join(dir, "target", "inside"), { recursive: true });
  await assert.rejects(writeFileAtomic(join(dir, "target"), "text"), { code: "EISDIR" });
  assert.deepEqual(await readdir(dir), ["target"]);
  await assert.rejects(writeFileAtomic(join(dir, "none", "file"), "text"), { code: "ENOENT" });
});

test("writeFileAtomic() leaves one complete file when many write at once", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "file");
  const texts = Array.from({ length: 10 }, (_, index) => String(index).repeat(10_000));
  await Promise.all(texts.map((text) => writeFileAtomic(path, text)));
  assert.ok(texts.includes(await readFile(path, "utf8")));
  assert.deepEqual(await readdir(dir), ["file"]);
});

test("readJson() returns the value, undefined without a file, and throws for half a file", async (t) => {
  const path = join(await temporaryDirectory(t), "value.json");
  assert.equal(await readJson(path), undefined);
  await writeFile(path, '{"a":[1]}');
  assert.deepEqual(await readJson(path), { a: [1] });
  await writeFile(path, '{"a":[1');
  await assert.rejects(readJson(path), SyntaxError);
});

test("removeTree() removes a tree and accepts that there is none", async (t) => {
  const dir = await temporaryDirectory(t);
  await mkdir(join(dir, "a", "b"), { recursive: true });
  await writeFile(join(dir, "a", "b", "c"), "");
  await removeTree(join(dir, "a"));
  await removeTree(join(dir, "a"));
  assert.deepEqual(await readdir(dir), []);
});

test("isErrno() recognises system errors by their code", () => {
  const error = Object.assign(new Error("no"), { code: "ENOENT" });
  assert.equal(isErrno(error, "EEXIST", "ENOENT"), true);
  assert.equal(isErrno(error, "EEXIST"), false);
  for (const other of [
    new Error("no"),
    { code: "ENOENT" },
    undefined,
    Object.assign(new Error(), { code: 2 }),
  ]) {
    assert.equal(isErrno(other, "ENOENT"), false);
  }
});
