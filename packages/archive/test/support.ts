/** Small snapshots in separate stores, and archives of them. */
import { createHash } from "node:crypto";
import { open, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TestContext } from "node:test";
import { runProgram } from "@forkd/base";
import { finishLayer, Store, type Draft, type ManifestFacts, type StoredSnapshot } from "@forkd/store";
import { manifestFacts, temporaryDirectory } from "@forkd/test-support";
import { BlobCache, packSnapshot, unpackArchive, writeArchive, type PackedSnapshot } from "../src/index.ts";

export const page = 4096;
export const mib = 1 << 20;
const memoryMib = 8;

export async function openStore(t: TestContext): Promise<Store> {
  return openAt(await temporaryDirectory(t));
}

export function openAt(place: string): Promise<Store> {
  return Store.open(join(place, "snapshots"), { cacheDir: join(place, "cache", "memory") });
}

export async function openCache(t: TestContext, maxBytes = 1 << 30): Promise<BlobCache> {
  return new BlobCache(join(await temporaryDirectory(t), "blobs"), { maxBytes });
}

export function facts(): ManifestFacts {
  return manifestFacts({ memoryMib });
}

/** Bytes that do not repeat and are the same in every run. */
export function noise(seed: string, bytes: number): Buffer {
  const pieces: Buffer[] = [];
  for (let index = 0; index * 32 < bytes; index++) {
    pieces.push(createHash("sha256").update(`${seed} ${index}`).digest());
  }
  return Buffer.concat(pieces).subarray(0, bytes);
}

/** Files with holes, zero pages, pages that repeat in the same and in another file, and an odd length. */
async function fillFlat(draft: Draft, seed: string): Promise<void> {
  const disk = noise(`${seed} disk`, 40 * page);
  await using rootfs = await open(draft.path("rootfs"), "wx");
  await rootfs.truncate(64 * mib);
  await rootfs.write(disk, 0, disk.length, 16 * page);
  await rootfs.write(disk, 0, 4 * page, 1000 * page);
  await rootfs.write(Buffer.alloc(3 * page), 0, 3 * page, 2000 * page);
  await using memory = await open(draft.path("memory"), "wx");
  await memory.truncate(memoryMib * mib);
  await memory.write(disk, 5 * page, 20 * page, 100 * page);
  await memory.write(noise(`${seed} memory`, 30 * page), 0, 30 * page, 200 * page);
  await memory.write(noise(`${seed} last`, page), 0, page, memoryMib * mib - page);
  await fillRest(draft, seed);
}

async function fillRest(draft: Draft, seed: string): Promise<void> {
  await writeFile(draft.path("devices"), noise(`${seed} devices`, 10_001));
  await writeFile(draft.diskPath(0), noise(`${seed} layer of the disk`, 2 * page + 7));
}

export async function makeFlat(store: Store, tag: string, seed = tag): Promise<StoredSnapshot> {
  await using draft = await store.draft(tag);
  await fillFlat(draft, seed);
  return await draft.commit(facts());
}

/** One whose pages fill several chunks. */
export async function makeLarge(store: Store, tag: string): Promise<StoredSnapshot> {
  await using draft = await store.draft(tag);
  await fillFlat(draft, tag);
  await using rootfs = await open(draft.path("rootfs"), "r+");
  const pages = Buffer.alloc(33 * mib);
  // Different from each other, and quickly compressed.
  for (let at = 0; at < pages.length; at += page) pages.fill(`page ${at} of ${tag} `, at, at + page);
  await rootfs.write(pages, 0, pages.length, 8 * mib);
  return await draft.commit(facts());
}

/** A layer over `parent` with some pages. */
export async function makeLayered(
  store: Store,
  tag: string,
  parent: StoredSnapshot,
  seed = tag,
): Promise<StoredSnapshot> {
  await using draft = await store.draft(tag);
  const pages = [3, 4, 5, 900];
  const extents = [
    { first: 3, count: 3 },
    { first: 900, count: 1 },
  ];
  const table = Buffer.alloc(extents.length * 16);
  for (const [index, { first, count }] of extents.entries()) {
    table.writeBigUInt64LE(BigInt(first), index * 16);
    table.writeUInt32LE(count, index * 16 + 8);
  }
  const data = noise(`${seed} pages`, pages.length * page);
  await writeFile(draft.path("layer"), Buffer.concat([Buffer.alloc(page), data, table]));
  await finishLayer(draft.path("layer"), {
    memoryBytes: memoryMib * mib,
    pages: pages.length,
    extents: extents.length,
  });
  await draft.share(draft.path("rootfs"), join(parent.dir, "rootfs.ext4"));
  await draft.share(draft.diskPath(0), join(parent.dir, "disk-0.qcow2"));
  await writeFile(draft.diskPath(1), noise(`${seed} disk 1`, 3 * page));
  await writeFile(draft.path("devices"), noise(`${seed} devices`, 5000));
  return await draft.commit({
    ...facts(),
    origin: { kind: "branch", sandbox: "sb-000000000000000000000000", mode: "diff", pause_ms: 4.5 },
    parent: { tag: parent.tag, id: parent.id },
  });
}

export async function pack(
  t: TestContext,
  store: Store,
  snapshot: StoredSnapshot,
  options: { level?: number; cache?: BlobCache } = {},
): Promise<PackedSnapshot> {
  const cache = options.cache ?? (await openCache(t));
  return packSnapshot(store, snapshot, { ...options, cache });
}

export async function archiveOf(t: TestContext, store: Store, snapshot: StoredSnapshot): Promise<Buffer> {
  return bytesOf(await pack(t, store, snapshot));
}

export async function bytesOf(packed: PackedSnapshot): Promise<Buffer> {
  const { bytes, stream } = writeArchive(packed);
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(piece as Buffer);
  const all = Buffer.concat(pieces);
  if (all.length !== bytes) throw new Error(`the archive has ${all.length} bytes, not ${bytes}`);
  return all;
}

export function unpack(
  store: Store,
  archive: Buffer,
  options: Parameters<typeof unpackArchive>[2] = {},
): Promise<StoredSnapshot[]> {
  return unpackArchive(store, inPieces(archive), options);
}

/** Pieces that are neither blocks nor chunks. */
export function inPieces(bytes: Buffer, length = 70_001): Readable {
  return Readable.from(
    (function* () {
      for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
    })(),
    { objectMode: false },
  );
}

/** Names and content of the files of a snapshot. */
export async function contentOf(dir: string): Promise<Map<string, string>> {
  const names = (await readdir(dir)).sort();
  const hashes = await Promise.all(
    names.map(async (name) =>
      createHash("sha256")
        .update(await readFile(join(dir, name)))
        .digest("hex"),
    ),
  );
  return new Map(names.map((name, index) => [name, hashes[index] ?? ""]));
}

export async function zstd(bytes: Buffer, dir: string): Promise<Buffer> {
  const path = join(dir, `raw-${createHash("sha256").update(bytes).digest("hex")}`);
  await writeFile(path, bytes);
  await runProgram("zstd", ["-q", "-f", "--no-check", path]);
  return readFile(`${path}.zst`);
}
