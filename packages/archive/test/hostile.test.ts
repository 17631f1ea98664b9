/** Archives that are not what they seem. Every one is refused with a name for what is wrong, and leaves nothing. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { runProgram } from "@forkd/base";
import type { Store } from "@forkd/store";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { encodeHeader, paddingOf } from "../src/file/tar.ts";
import { digestOf, headerOf, nameOf, Parts } from "./parts.ts";
import { archiveOf, makeFlat, makeLayered, openStore, page, unpack, zstd } from "./support.ts";

type Case = { parts: Parts; store: Store; refuse: (archive: Buffer, problem: RegExp) => Promise<void> };

async function begin(t: TestContext, kind: "flat" | "chain" = "flat"): Promise<Case> {
  const here = await openStore(t);
  const base = await makeFlat(here, "base");
  const made = kind === "flat" ? base : await makeLayered(here, "top", base);
  const store = await openStore(t);
  const refuse = async (archive: Buffer, problem: RegExp): Promise<void> => {
    await rejectsWith(unpack(store, archive), "invalid_archive", problem);
    assert.deepEqual(await readdir(store.root), [], "nothing is left behind");
  };
  return { parts: new Parts(await archiveOf(t, here, made)), store, refuse };
}

/** The raw map of a file. */
async function mapOf({ parts }: Case, file: number, dir: string): Promise<{ digest: string; raw: Buffer }> {
  const digest = parts.config.files[file]?.map ?? assert.fail("no map");
  await writeFile(join(dir, "map.zst"), parts.get(nameOf(digest)));
  await runProgram("zstd", ["-q", "-f", "-d", "map.zst"], { cwd: dir });
  return { digest, raw: await readFile(join(dir, "map")) };
}

test("the parts that the tests below change are an archive when they are not changed", async (t) => {
  const { parts, store } = await begin(t, "chain");
  await unpack(store, parts.archive());
  assert.deepEqual((await readdir(store.root)).sort(), ["base", "top"]);
});

test("an archive that is cut at any place is refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const whole = parts.archive();
  for (const at of [0, 1, 511, 700, 3000, whole.length >> 1, whole.length - 1500, whole.length - 1024]) {
    await refuse(whole.subarray(0, at), /it ends after/);
  }
});

test("names outside the layout are refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const [first, ...rest] = parts.entries;
  for (const name of [
    "../escape",
    "/etc/passwd",
    "blobs/sha256/../../escape",
    "blobs/sha256/short",
    "other",
  ]) {
    parts.entries = [first ?? assert.fail(), { name, bytes: Buffer.from("x") }, ...rest];
    await refuse(parts.archive(), /does not belong to it/);
  }
});

test("links, devices and names in pax headers are refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const whole = parts.archive();
  for (const type of ["1", "2", "3", "4", "6", "7", "L", "g"]) {
    await refuse(
      Buffer.concat([headerOf("index.json", type, "/etc/passwd"), whole]),
      /is not a regular file/,
    );
  }
  await refuse(Buffer.concat([headerOf("blobs/../..", "5"), whole]), /does not belong to it/);
  const record = Buffer.from("16 path=../evil\n");
  const pax = encodeHeader("pax", record.length);
  pax.write("x", 156, "latin1");
  pax.write("        ", 148, "latin1");
  const sum = pax.reduce((total, byte) => total + byte, 0);
  pax.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  const padded = Buffer.concat([record, Buffer.alloc(paddingOf(record.length))]);
  await refuse(Buffer.concat([pax, padded, whole]), /a name in a pax header/);
});

test("entries that are there twice, and those that nothing names, are refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const { entries } = parts;
  for (const each of [entries[1], entries[3], entries.at(-1)]) {
    parts.entries = [...entries, each ?? assert.fail()];
    await refuse(parts.archive(), /is there twice/);
  }
  const extra = Buffer.from("nobody named me");
  parts.entries = [...entries, { name: nameOf(digestOf(extra)), bytes: extra }];
  await refuse(parts.archive(), /is not named by its OCI manifest/);
  parts.entries = entries;
  await refuse(Buffer.concat([parts.archive(), Buffer.from("more")]), /something follows after its end/);
});

test("an archive without one of its parts is refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const { entries } = parts;
  for (const missing of entries) {
    parts.entries = entries.filter((entry) => entry !== missing);
    await refuse(parts.archive(), /is missing|it has no/);
  }
});

test("a byte that is changed in any blob is noticed", async (t) => {
  const { parts, refuse } = await begin(t, "chain");
  for (const entry of parts.entries.slice(2)) {
    const before = entry.bytes;
    entry.bytes = Buffer.from(before);
    entry.bytes.writeUInt8(before.readUInt8(before.length >> 1) ^ 1, before.length >> 1);
    await refuse(parts.archive(), /differs from its digest/);
    entry.bytes = before;
  }
});

test("unknown versions are refused by name", async (t) => {
  const at = await begin(t);
  const dir = await temporaryDirectory(t);
  const { parts, refuse } = at;
  const config = parts.config;
  const { digest, raw } = await mapOf(at, 0, dir);
  parts.setConfig({ ...config, version: 2 });
  await refuse(parts.archive(), /it has version 2, but this forkd reads version 1/);
  parts.setConfig({ ...config, unknown: 1 });
  await refuse(parts.archive(), /its config/);
  parts.setConfig(config);
  raw.writeUInt32LE(9, 8);
  parts.replaceBlob(digest, await zstd(raw, dir));
  await refuse(parts.archive(), /the map of file 0 has version 9/);
});

test("something that is not a snapshot is refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const manifest = parts.manifest;
  const config = { ...manifest.config, mediaType: "application/vnd.oci.image.config.v1+json" };
  parts.setManifest({ ...manifest, config });
  await refuse(parts.archive(), /it is not a snapshot/);
  await refuse(Buffer.from("this is not a tar file".repeat(100)), /it is not a tar file/);
});

test("lies about sizes are refused before anything is read into memory", async (t) => {
  const { parts, refuse } = await begin(t);
  const manifest = parts.manifest;
  const change = (index: number, size: number) => ({
    ...manifest,
    layers: manifest.layers.map((layer, at) => (at === index ? { ...layer, size } : layer)),
  });
  for (const [index] of manifest.layers.entries()) {
    for (const size of [1, 2 ** 40]) {
      parts.setManifest(change(index, size));
      await refuse(parts.archive(), /bytes/);
    }
  }
  parts.setManifest({ ...manifest, config: { ...manifest.config, size: 2 ** 40 } });
  await refuse(parts.archive(), /its config has 1099511627776 bytes/);
});

test("a frame that has more or less in it than its map says is refused", async (t) => {
  const at = await begin(t);
  const dir = await temporaryDirectory(t);
  for (const length of [page, 64 << 20]) {
    const { parts, refuse } = await begin(t);
    const { pages, map } = parts.config.files[0] ?? assert.fail();
    const bomb = await zstd(Buffer.alloc(length), dir);
    const { raw } = await mapOf({ ...at, parts }, 0, dir);
    raw.writeUInt32LE(bomb.length, 40);
    createHash("sha256").update(bomb).digest().copy(raw, 44);
    parts.replaceBlob(pages ?? assert.fail(), bomb);
    parts.replaceBlob(map, await zstd(raw, dir));
    await refuse(parts.archive(), length === page ? /has 4096 bytes when decompressed/ : /more than/);
  }
});

test("chunks and maps that are not zstd are refused", async (t) => {
  const at = await begin(t);
  const dir = await temporaryDirectory(t);
  const { parts, refuse } = at;
  const { map, pages } = parts.config.files[0] ?? assert.fail();
  const { raw } = await mapOf(at, 0, dir);
  const junk = Buffer.from("certainly not a frame");
  raw.writeUInt32LE(junk.length, 40);
  createHash("sha256").update(junk).digest().copy(raw, 44);
  parts.replaceBlob(pages ?? assert.fail(), junk);
  parts.replaceBlob(map, await zstd(raw, dir));
  await refuse(parts.archive(), /chunk 0 of blob .* cannot be decompressed/);
  parts.replaceBlob(parts.config.files[0]?.map ?? "", Buffer.from("nor is this"));
  await refuse(parts.archive(), /the map of file 0 cannot be decompressed/);
  parts.replaceBlob(parts.config.files[0]?.map ?? "", await zstd(Buffer.alloc(300), dir));
  await refuse(parts.archive(), /the map of file 0 is not a map/);
});

test("maps with runs outside their file or source are refused", async (t) => {
  const dir = await temporaryDirectory(t);
  const runs = 36;
  const columns = (raw: Buffer) => {
    const start = 40 + raw.readUInt32LE(32) * 36;
    const count = raw.readUInt32LE(runs);
    return (column: number, run = 0) => start + (column * count + run) * 4;
  };
  const changes: [RegExp, (raw: Buffer, at: (column: number, run?: number) => number) => void][] = [
    [/has a run \d+ that ends after the file/, (raw, at) => raw.writeUInt32LE(0xffff_fff0, at(0))],
    [/has a run \d+ that ends after the file/, (raw, at) => raw.writeUInt32LE(0xffff_ffff, at(1))],
    [/has an empty run/, (raw, at) => raw.writeUInt32LE(0, at(1))],
    [/from a file that does not come before it/, (raw, at) => raw.writeUInt32LE(7, at(2))],
    [/from a file that does not come before it/, (raw, at) => raw.writeUInt32LE(0xffff_ffff, at(2))],
    [/that ends after its source/, (raw, at) => raw.writeUInt32LE(0x1000_0000, at(3))],
    [/has \d+ runs/, (raw) => raw.writeUInt32LE(0xffff_ffff, runs)],
    [/has 2 chunks for \d+ pages/, (raw) => raw.writeUInt32LE(2, 32)],
    [/pages, more than the file/, (raw) => raw.writeBigUInt64LE(2n ** 63n, 24)],
    [/is for a file of/, (raw) => raw.writeBigUInt64LE(4096n, 16)],
    [/has pages of 512 bytes/, (raw) => raw.writeUInt32LE(512, 12)],
    [/has a chunk 0 of 0 bytes/, (raw) => raw.writeUInt32LE(0, 40)],
  ];
  const at = await begin(t);
  const { digest, raw } = await mapOf(at, 2, dir);
  const { entries } = at.parts;
  for (const [problem, change] of changes) {
    at.parts.entries = entries.map((entry) => ({ ...entry }));
    const changed = Buffer.from(raw);
    change(changed, columns(raw));
    at.parts.replaceBlob(digest, await zstd(changed, dir));
    await at.refuse(at.parts.archive(), problem);
  }
});

test("a map that puts the right pages in the wrong places is noticed by the digest of the file", async (t) => {
  const at = await begin(t);
  const dir = await temporaryDirectory(t);
  const { digest, raw } = await mapOf(at, 2, dir);
  const start = 40 + raw.readUInt32LE(32) * 36;
  raw.writeUInt32LE(raw.readUInt32LE(start) + 1, start);
  raw.writeUInt32LE(raw.readUInt32LE(start + 4) - 1, start + 4);
  at.parts.replaceBlob(digest, await zstd(raw, dir));
  await at.refuse(at.parts.archive(), /differs from its digest/);
});

test("a file that would fill the disk is refused before it is written", async (t) => {
  const at = await begin(t);
  const dir = await temporaryDirectory(t);
  const { parts, store } = at;
  const { digest, raw } = await mapOf(at, 0, dir);
  const config = parts.config;
  const length = 2 ** 43;
  // One page of the blob, two billion times: a run cannot repeat, so many runs do.
  const count = 1 << 20;
  const header = Buffer.from(raw.subarray(0, 40 + 36));
  header.writeBigUInt64LE(BigInt(length), 16);
  header.writeUInt32LE(count, 36);
  const table = Buffer.alloc(count * 16);
  const pages = Number(header.readBigUInt64LE(24));
  for (let run = 0; run < count; run++) {
    table.writeUInt32LE(pages, (count + run) * 4);
    table.writeUInt32LE(run === 0 ? 0 : -pages >>> 0, (3 * count + run) * 4);
  }
  const text = config.manifests[0] ?? "";
  const { manifest_digest: _, ...manifest } = JSON.parse(text) as Record<string, unknown> & {
    files: { rootfs: { bytes: number } };
  };
  manifest.files.rootfs.bytes = length;
  parts.replaceBlob(digest, await zstd(Buffer.concat([header, table]), dir));
  const files = parts.config.files.map((file, index) => (index === 0 ? { ...file, bytes: length } : file));
  parts.setConfig({ ...parts.config, manifests: [JSON.stringify(manifest)], files });
  await rejectsWith(unpack(store, parts.archive()), "disk_full", /its files need/);
  assert.deepEqual(await readdir(store.root), []);
});

test("chains that are none are refused", async (t) => {
  const { parts, refuse } = await begin(t, "chain");
  const config = parts.config;
  const [base = "", top = ""] = config.manifests;
  const own = (manifests: string[], files = config.files) => {
    parts.setConfig({ ...config, manifests, files });
    return parts.archive();
  };
  await refuse(own([top]), /the parent "base" of its lowest snapshot is missing/);
  await refuse(own([top, base]), /the parent "base" of its lowest snapshot is missing/);
  await refuse(own([base, base]), /manifest 1 of its chain is not a layer over the one below/);
  await refuse(own([base, top, top]), /manifest 2 of its chain is not a layer over the one below/);
  await refuse(own([base.replace("0.1.0", "0.1.1"), top]), /does not match its digest/);
  await refuse(own(["{}", top]), /manifest 0 of its chain/);
  await refuse(own(["", top]), /manifest 0 of its chain/);
  await refuse(own([base, top], config.files.slice(1)), /its config has \d+ files/);
  await refuse(own([base, top], config.files.toReversed()), /is not the one that its manifests name/);
  await refuse(own([]), /its config/);
});

test("blobs that the config and the OCI manifest do not name alike are refused", async (t) => {
  const { parts, refuse } = await begin(t);
  const config = parts.config;
  const manifest = parts.manifest;
  parts.setManifest({ ...manifest, layers: manifest.layers.slice(1) });
  await refuse(parts.archive(), /does not name blob/);
  parts.setManifest({ ...manifest, layers: [...manifest.layers, manifest.layers[0]] });
  await refuse(parts.archive(), /twice/);
  const swapped = manifest.layers.map((layer, index) => ({
    ...layer,
    mediaType: manifest.layers.at(-1 - index)?.mediaType ?? "",
  }));
  parts.setManifest({ ...manifest, layers: swapped });
  await refuse(parts.archive(), /has another media type/);
  parts.setManifest(manifest);
  const [first, ...rest] = config.files;
  const { pages: _, ...without } = first ?? assert.fail();
  parts.setConfig({ ...config, files: [without, ...rest] });
  await refuse(parts.archive(), /no file of its config has blob/);
});
