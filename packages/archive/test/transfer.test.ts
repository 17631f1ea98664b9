/** Transfers in parts: only what is missing, interrupted and continued, full disks, processes that are killed. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm, rmdir, stat, truncate, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { runProgram, Scope } from "@forkd/base";
import type { StoredSnapshot } from "@forkd/store";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { Unpacker, unpackBlobs, type BlobSource, type PackedSnapshot } from "../src/index.ts";
import {
  archiveOf,
  bytesOf,
  contentOf,
  inPieces,
  makeFlat,
  makeLarge,
  makeLayered,
  openAt,
  openStore,
  pack,
  unpack,
} from "./support.ts";

type Reads = { pages: number };

/** The blobs of a packed snapshot, as a registry gives them. */
function sourceOf(packed: PackedSnapshot, reads: Reads = { pages: 0 }): BlobSource {
  return {
    manifest: packed.manifest.bytes,
    read: (blob, range) => {
      const found = packed.blobs.find(({ digest }) => digest === blob.digest) ?? assert.fail(blob.digest);
      if (range) reads.pages += range.length;
      return found.open(range);
    },
  };
}

async function packLarge(t: TestContext): Promise<{ packed: PackedSnapshot; made: StoredSnapshot }> {
  const store = await openStore(t);
  const made = await makeLarge(store, "large");
  return { packed: await pack(t, store, made), made };
}

test("unpackBlobs() reads parts of blobs and makes the same snapshot", async (t) => {
  const { packed, made } = await packLarge(t);
  const store = await openStore(t);
  const reads: Reads = { pages: 0 };
  const seen: number[] = [];
  const [unpacked] = await unpackBlobs(store, sourceOf(packed, reads), {
    tag: "here",
    onProgress: ({ doneBytes }) => seen.push(doneBytes),
  });
  assert.deepEqual(await contentOf(unpacked?.dir ?? ""), await contentOf(made.dir));
  assert.equal(seen.at(-1), reads.pages);
});

test("files that are here are not read again, even if they are those of another snapshot", async (t) => {
  const here = await openStore(t);
  const base = await makeFlat(here, "base");
  const top = await makeLayered(here, "top", base);
  const there = await openStore(t);
  await unpack(there, await archiveOf(t, here, base), { tag: "renamed" });
  const packed = await pack(t, here, top);
  const reads: Reads = { pages: 0 };
  await unpackBlobs(there, sourceOf(packed, reads), { tag: "top" });
  const whole = packed.blobs.reduce((sum, { size }) => sum + size, 0);
  assert.ok(reads.pages < whole / 3, `${reads.pages} of ${whole} bytes were read`);
  const [one, two] = await Promise.all(
    ["renamed", "base"].map((tag) => stat(join(there.root, tag, "memory"))),
  );
  assert.equal(one?.ino, two?.ino);
});

test("a file that is here but damaged is not used", async (t) => {
  const here = await openStore(t);
  const base = await makeFlat(here, "base");
  const place = await temporaryDirectory(t);
  await unpack(await openAt(place), await archiveOf(t, here, base));
  await truncate(join(place, "snapshots", "base", "rootfs.ext4"), 5 << 20);
  const there = await openAt(place);
  const top = await makeLayered(here, "top", base);
  // The damaged parent is the one that the layer names, so only a copy beside it can be whole.
  await unpack(there, await archiveOf(t, here, top));
  const { size } = await stat(join(there.root, "top", "rootfs.ext4"));
  assert.equal(size, 64 << 20);
});

test("an interrupted transfer continues where it was, in another process too", async (t) => {
  const { packed, made } = await packLarge(t);
  const place = await temporaryDirectory(t);
  const store = await openAt(place);
  const source = sourceOf(packed);
  const options = { tag: "large", resumable: true };
  {
    await using first = await Unpacker.open(store, source, options);
    await rejectsWith(Unpacker.open(store, source, options), "snapshot_writing");
    assert.ok(first.missingChunks().length >= 3);
    await putFirst(first, source);
    await rejectsWith(first.finish(), "invalid_archive", /of its chunks are missing/);
  }
  const later = await openAt(place);
  const total = await missing(await openStore(t), source, { tag: "large" });
  assert.equal(await missing(later, source, options), total - 1);
  const [unpacked] = await unpackBlobs(later, source, options);
  assert.deepEqual(await contentOf(unpacked?.dir ?? ""), await contentOf(made.dir));
  assert.deepEqual(await readdir(later.root), ["large"]);
});

async function missing(...[store, source, options]: Parameters<typeof Unpacker.open>): Promise<number> {
  await using unpacker = await Unpacker.open(store, source, options);
  return unpacker.missingChunks().length;
}

async function putFirst(unpacker: Unpacker, source: BlobSource): Promise<void> {
  const { blob, chunks } = unpacker.missingBlobs()[0] ?? assert.fail();
  const [chunk] = chunks;
  assert.ok(chunk);
  await unpacker.put(chunk, await read(source.read(blob, chunk)));
}

async function read(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

test("what a continued transfer kept is compared with its digest like everything else", async (t) => {
  const { packed } = await packLarge(t);
  const store = await openStore(t);
  const source = sourceOf(packed);
  const options = { tag: "large", resumable: true };
  {
    await using first = await Unpacker.open(store, source, options);
    for (const { blob, chunks } of first.missingBlobs()) {
      for (const chunk of chunks.slice(0, 1)) await first.put(chunk, await read(source.read(blob, chunk)));
    }
  }
  const dir = (await readdir(store.root)).find((name) => name.startsWith(".pull-")) ?? assert.fail();
  const names = (await readdir(join(store.root, dir))).filter((name) => name.startsWith("file-"));
  for (const name of names) {
    const { size } = await stat(join(store.root, dir, name));
    await rm(join(store.root, dir, name));
    await writeFile(join(store.root, dir, name), "");
    await truncate(join(store.root, dir, name), size);
  }
  await rejectsWith(unpackBlobs(store, source, options), "invalid_archive", /differs from its digest/);
  assert.deepEqual(await readdir(store.root), []);
  await unpackBlobs(store, source, options);
});

test("a transfer that is not continued is removed after a week", async (t) => {
  const { packed } = await packLarge(t);
  const place = await temporaryDirectory(t);
  const store = await openAt(place);
  {
    const source = sourceOf(packed);
    await using unpacker = await Unpacker.open(store, source, { tag: "large", resumable: true });
    await putFirst(unpacker, source);
  }
  const [dir = ""] = await readdir(store.root);
  assert.match(dir, /^\.pull-/);
  await openAt(place);
  assert.deepEqual(await readdir(store.root), [dir]);
  const longAgo = new Date(Date.now() - 8 * 86_400_000);
  for (const name of [...(await readdir(join(store.root, dir))), "."])
    await utimes(join(store.root, dir, name), longAgo, longAgo);
  await openAt(place);
  assert.deepEqual(await readdir(store.root), []);
});

const needsRoot = { skip: process.getuid?.() === 0 ? false : "mounting a file system needs root" };

test("a disk that is full, now or halfway, leaves nothing", needsRoot, async (t) => {
  const { packed } = await packLarge(t);
  const place = await mkdtemp(join(tmpdir(), "forkd-archive-mount-"));
  t.after(() => rmdir(place));
  await runProgram("mount", ["-t", "tmpfs", "-o", "size=24m", "forkd-test", place]);
  await using mounted = new Scope();
  mounted.defer(async () => void (await runProgram("umount", [place])));
  const store = await openAt(place);
  await rejectsWith(unpack(store, await bytesOf(packed)), "disk_full", /its files need/);
  assert.deepEqual(await readdir(store.root), []);
  await runProgram("mount", ["-o", "remount,size=400m", place]);
  const filler = join(place, "filler");
  const archive = unpack(store, await bytesOf(packed), {
    // There was room when it began.
    onOpen: async () => void (await runProgram("fallocate", ["-l", `${390 << 20}`, filler])),
  });
  await rejectsWith(archive.catch(appError), "disk_full");
  assert.deepEqual(await readdir(store.root), []);
  await rm(filler);
  await unpack(store, await bytesOf(packed));
});

/** What the daemon makes of an error of a system call. */
async function appError(error: unknown): Promise<never> {
  const { toAppError } = await import("@forkd/contract");
  throw toAppError(error);
}

test("a process that is killed while it unpacks leaves nothing after the next start", async (t) => {
  const { packed } = await packLarge(t);
  const place = await temporaryDirectory(t);
  const archive = await bytesOf(packed);
  const script = fileURLToPath(new URL("./unpack-stdin.js", import.meta.url));
  const child = spawn(process.execPath, [script, place], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  // All but the last blob.
  for await (const piece of inPieces(archive.subarray(0, -15_000))) child.stdin.write(piece);
  // It says that pages have been written.
  const [said] = (await Promise.race([once(child.stdout, "data"), ended])) as [unknown];
  assert.ok(Buffer.isBuffer(said), "the process has exited");
  child.kill("SIGKILL");
  await ended;
  const left = await readdir(join(place, "snapshots"));
  assert.ok(left.length > 0 && left.every((name) => name.startsWith(".draft-")), left.join(" "));
  const store = await openAt(place);
  assert.deepEqual(await readdir(store.root), []);
  await unpack(store, archive);
  assert.deepEqual(await readdir(store.root), ["large"]);
});

test("an abort stops packing and unpacking and leaves nothing", async (t) => {
  const { packed } = await packLarge(t);
  const store = await openStore(t);
  const controller = new AbortController();
  const archive = await bytesOf(packed);
  const work = unpack(store, archive, {
    signal: controller.signal,
    onProgress: () => controller.abort(new Error("enough")),
  });
  await assert.rejects(work, /enough/);
  assert.deepEqual(await readdir(store.root), []);
});

test("a transfer that ends before its first chunk leaves nothing", async (t) => {
  const { packed } = await packLarge(t);
  const store = await openStore(t);
  const refused = new Error("refused");
  const onOpen = (): never => {
    throw refused;
  };
  const options = { tag: "large", resumable: true, onOpen };
  await assert.rejects(unpackBlobs(store, sourceOf(packed), options), refused);
  assert.deepEqual(await readdir(store.root), []);
});
