import assert from "node:assert/strict";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { archiveLevels } from "@forkd/contract";
import { asideTag } from "@forkd/store";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { mediaTypes } from "../src/index.ts";
import {
  archiveOf,
  bytesOf,
  contentOf,
  makeFlat,
  makeLayered,
  mib,
  openCache,
  openStore,
  pack,
  unpack,
} from "./support.ts";

test("a snapshot that is packed and unpacked elsewhere has the same id and the same files", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const made = await makeFlat(here, "base");
  const [unpacked] = await unpack(there, await archiveOf(t, here, made));
  assert.equal(unpacked?.id, made.id);
  assert.equal(unpacked.tag, "base");
  assert.deepEqual(await contentOf(unpacked.dir), await contentOf(made.dir));
  await there.verify(await there.get("base"), { always: true });
  const { blocks } = await stat(join(unpacked.dir, "rootfs.ext4"));
  assert.ok(blocks * 512 < mib, `the holes of the root file system take ${blocks} blocks`);
  assert.deepEqual(await readdir(there.root), ["base"]);
});

test("packing twice, and packing what was unpacked, gives the same bytes", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const made = await makeLayered(here, "top", await makeFlat(here, "base"));
  const first = await archiveOf(t, here, made);
  assert.ok(first.equals(await archiveOf(t, here, made)));
  await unpack(there, first);
  assert.ok(first.equals(await archiveOf(t, there, await there.get("top"))));
});

test("the tag is part of the file, but not of the OCI manifest", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const packed = await pack(t, here, await makeFlat(here, "base"));
  await unpack(there, await bytesOf(packed), { tag: "other" });
  assert.deepEqual(await readdir(there.root), ["other"]);
  const again = await pack(t, there, await there.get("other"));
  assert.equal(again.manifest.digest, packed.manifest.digest);
  assert.notEqual((await bytesOf(again)).compare(await bytesOf(packed)), 0);
});

test("pages that an earlier file has, and zero pages, cost nothing", async (t) => {
  const store = await openStore(t);
  const packed = await pack(t, store, await makeFlat(store, "base"));
  // 40 pages of the disk, 31 of the memory, 3 each of disk layer and devices; none of them can be compressed.
  const bytes = packed.blobs
    .filter(({ mediaType }) => mediaType === mediaTypes.pages)
    .reduce((sum, { size }) => sum + size, 0);
  assert.ok(bytes > 74 * 4096 && bytes < 79 * 4096, `the pages take ${bytes} bytes`);
});

test("a snapshot over a base has the blobs of the base", async (t) => {
  const store = await openStore(t);
  const cache = await openCache(t);
  const base = await makeFlat(store, "base");
  const one = await pack(t, store, base, { cache });
  const two = await pack(t, store, await makeLayered(store, "top", base), { cache });
  const digests = new Set(two.blobs.map(({ digest }) => digest));
  for (const { mediaType, digest } of one.blobs) {
    assert.equal(digests.has(digest), mediaType !== mediaTypes.config);
  }
  const fresh = await pack(t, store, await store.get("top"));
  assert.equal(fresh.manifest.digest, two.manifest.digest);
});

test("a chain is unpacked with its parents, and not again if they are there", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const base = await makeFlat(here, "base");
  const middle = await makeLayered(here, "middle", base);
  const top = await makeLayered(here, "top", middle);
  const unpacked = await unpack(there, await archiveOf(t, here, top));
  assert.deepEqual(
    unpacked.map(({ tag, id }) => ({ tag, id })),
    [base, middle, top].map(({ tag, id }) => ({ tag, id })),
  );
  await there.verify(await there.get("top"), { always: true });
  const { ino } = await stat(join(there.root, "base", "memory"));
  await unpack(there, await archiveOf(t, here, top), { tag: "again" });
  assert.equal((await stat(join(there.root, "base", "memory"))).ino, ino);
  const [one, two] = await Promise.all(
    ["top", "again"].map((tag) => stat(join(there.root, tag, "rootfs.ext4"))),
  );
  assert.equal(one?.ino, two?.ino, "files with the same digest are links");
});

test("a parent whose tag another snapshot has is kept aside, where its child finds it", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const base = await makeFlat(here, "base");
  const archive = await archiveOf(t, here, await makeLayered(here, "top", base));
  const other = await makeFlat(there, "base", "another one");
  await unpack(there, archive);
  const aside = asideTag("base", base.id);
  assert.deepEqual((await readdir(there.root)).sort(), ["base", aside, "top"].sort());
  assert.equal((await there.get("base")).id, other.id);
  const chain = await there.chain(await there.get("top"));
  assert.deepEqual(
    chain.map(({ tag }) => tag),
    ["top", aside],
  );
  assert.deepEqual(await there.dependents(aside), ["top"]);
  assert.deepEqual(await there.dependents("base"), []);
  await there.verify(await there.get("top"), { always: true });
});

test("a snapshot that gets the tag of its own parent leaves the parent aside", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const base = await makeFlat(here, "base");
  const archive = await archiveOf(t, here, await makeLayered(here, "top", base));
  await unpack(there, archive, { tag: "base" });
  assert.deepEqual((await readdir(there.root)).sort(), ["base", asideTag("base", base.id)].sort());
  await there.verify(await there.get("base"), { always: true });
});

test("unpackArchive() refuses a tag that another snapshot has, unless it replaces it", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const made = await makeFlat(here, "base");
  const archive = await archiveOf(t, here, made);
  const other = await makeFlat(there, "base", "another one");
  await rejectsWith(unpack(there, archive), "snapshot_exists");
  assert.equal((await there.get("base")).id, other.id);
  assert.deepEqual(await readdir(there.root), ["base"]);
  await unpack(there, archive, { replace: true });
  assert.equal((await there.get("base")).id, made.id);
  assert.deepEqual(await readdir(there.root), ["base"]);
});

test("unpackArchive() changes nothing if the snapshot is there already", async (t) => {
  const store = await openStore(t);
  const made = await makeFlat(store, "base");
  const { stamp } = await store.get("base");
  const [found] = await unpack(store, await archiveOf(t, store, made));
  assert.equal(found?.id, made.id);
  assert.equal((await store.get("base")).stamp, stamp);
});

test("a chain longer than one memory can have layers gets whole memories in between", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  let top = await makeFlat(here, "s0");
  for (let index = 1; index < 40; index++) {
    top = await makeLayered(here, `s${index}`, top);
    if (index === 25) await here.keepImage(await here.get(top.tag));
  }
  const unpacked = await unpack(there, await archiveOf(t, here, await here.get(top.tag)));
  assert.equal(unpacked.length, 40);
  await there.verify(await there.get("s39"));
});

test("another writer may have put the parts in another order", async (t) => {
  const here = await openStore(t);
  const there = await openStore(t);
  const dir = await temporaryDirectory(t);
  const made = await makeLayered(here, "top", await makeFlat(here, "base"));
  const { writeFile, readFile } = await import("node:fs/promises");
  await writeFile(join(dir, "first.tar"), await archiveOf(t, here, made));
  await runProgram("tar", ["-xf", "first.tar"], { cwd: dir });
  for (const format of ["gnu", "pax"]) {
    const args = ["-cf", `${format}.tar`, `--format=${format}`, "./blobs", "./index.json", "./oci-layout"];
    await runProgram("tar", args, { cwd: dir });
    const unpacked = await unpack(there, await readFile(join(dir, `${format}.tar`)), { tag: `as-${format}` });
    assert.equal(unpacked.at(-1)?.id, made.id);
  }
  assert.deepEqual((await readdir(there.root)).sort(), ["as-gnu", "as-pax", "base"]);
});

test("packSnapshot() refuses a level that zstd does not have", async (t) => {
  const store = await openStore(t);
  const made = await makeFlat(store, "base");
  for (const level of [0, archiveLevels.most + 1, 1.5]) {
    await rejectsWith(pack(t, store, made, { level }), "invalid_request");
  }
});

test("the cache of blobs keeps its limit, and what is in use", async (t) => {
  const store = await openStore(t);
  const cache = await openCache(t, 0);
  const made = await makeFlat(store, "base");
  const packed = await pack(t, store, made, { cache });
  assert.ok((await bytesOf(packed)).length > 0);
  await packed[Symbol.asyncDispose]();
  assert.equal(await cache.trim(), 0);
  const again = await pack(t, store, made, { cache });
  assert.equal(again.manifest.digest, packed.manifest.digest);
});
