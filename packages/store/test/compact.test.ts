import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { toAppError } from "@forkd/contract";
import { runProgram } from "@forkd/base";
import { mergeDisks } from "../src/disk-merge.ts";
import { snapshotDisks, snapshotFile, type StoredSnapshot } from "../src/snapshot.ts";
import type { Store } from "../src/store.ts";
import { overlay, randomNumbers } from "./layer-model.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import {
  branchFacts,
  fillLayer,
  makeLayered,
  makeSnapshot,
  mib,
  namesIn,
  needsRoot,
  openStore,
  smallFileSystem,
} from "./support.ts";

const diskBytes = 8 * mib;

type Node = { driver: string; file: { driver: string; filename: string }; backing?: Node };

/** Describes disk layers (bottom to top, none names its backing file) over a raw image to QEMU. */
function diskChain(layers: readonly string[], rootfs: string): string {
  const file = (filename: string) => ({ driver: "file", filename });
  const node = layers.reduce<Node>((backing, path) => ({ driver: "qcow2", file: file(path), backing }), {
    driver: "raw",
    file: file(rootfs),
  });
  return `json:${JSON.stringify(node)}`;
}

/** Makes a disk layer over `below` and writes to it with qemu-io. */
async function makeDisk(
  path: string,
  below: readonly string[],
  rootfs: string,
  writes: string[],
): Promise<void> {
  await runProgram("qemu-img", ["create", "-q", "-f", "qcow2", path, String(diskBytes)]);
  const chain = diskChain([...below, path], rootfs);
  await runProgram("qemu-io", ["-d", "unmap", ...writes.flatMap((write) => ["-c", write]), chain]);
}

async function makeRootfs(path: string): Promise<void> {
  const random = randomNumbers(3);
  await writeFile(path, Buffer.from(Array.from({ length: diskBytes }, () => random(256))));
}

async function sumsOf(paths: readonly string[]): Promise<string[]> {
  return Promise.all(
    paths.map(async (path) =>
      createHash("sha256")
        .update(await readFile(path))
        .digest("hex"),
    ),
  );
}

const someWrites = [
  ["write -P 0x20 0 1M", "write -P 0x21 4M 128k", "write -P 0x22 6M 3000"],
  ["write -P 0x30 512k 1M", "write -z 5M 64k", "write -P 0x31 3000 700", "discard 128k 64k"],
  ["discard 0 64k", "write -z -u 4M 64k", "write -z 7000k 5k", "write -P 0x44 5M 4k", "discard 2M 1M"],
];

async function makeStack(dir: string): Promise<{ disks: string[]; rootfs: string }> {
  const rootfs = join(dir, "rootfs");
  await makeRootfs(rootfs);
  const disks: string[] = [];
  for (const [index, writes] of someWrites.entries()) {
    const path = join(dir, `stack-${index}`);
    await makeDisk(path, disks, rootfs, writes);
    disks.push(path);
  }
  return { disks, rootfs };
}

test("mergeDisks() makes one layer with the same content, with zeroed and discarded clusters", async (t) => {
  const dir = await temporaryDirectory(t);
  const { disks, rootfs } = await makeStack(dir);
  const before = await sumsOf([...disks, rootfs]);
  const out = join(dir, 'merged, with a comma and a "quote');
  await mergeDisks(disks, out);
  await runProgram("qemu-img", ["compare", diskChain(disks, rootfs), diskChain([out], rootfs)]);
  await runProgram("qemu-img", ["check", out]);
  assert.doesNotMatch((await runProgram("qemu-img", ["info", out])).stdout, /backing file/);
  assert.deepEqual(await sumsOf([...disks, rootfs]), before, "the layers and the root are only read");
  const { stdout } = await runProgram("qemu-io", [
    "-c",
    "read -P 0 2M 1M",
    "-c",
    "read -P 0 0 64k",
    diskChain([out], rootfs),
  ]);
  assert.doesNotMatch(stdout, /verification failed/i);
});

test("mergeDisks() gives the content of the chain for random writes", async (t) => {
  const dir = await temporaryDirectory(t);
  const rootfs = join(dir, "rootfs");
  await makeRootfs(rootfs);
  for (let seed = 0; seed < 4; seed++) {
    const random = randomNumbers(seed);
    const disks: string[] = [];
    for (let layer = 0; layer < 4; layer++) {
      const writes = Array.from({ length: 12 }, () => {
        const verb = ["write -P 0x55", "write -z", "write -z -u", "discard"][random(4)] ?? "";
        const at = random(diskBytes / 512 - 600) * 512;
        return `${verb} ${at} ${(1 + random(600)) * 512}`;
      });
      const path = join(dir, `${seed}-${layer}`);
      await makeDisk(path, disks, rootfs, writes);
      disks.push(path);
    }
    const out = join(dir, `${seed}-merged`);
    await mergeDisks(disks, out);
    await runProgram("qemu-img", ["compare", diskChain(disks, rootfs), diskChain([out], rootfs)]);
    await runProgram("qemu-img", ["check", out]);
  }
});

test("mergeDisks() fails with disk_full on a full disk", needsRoot, async (t) => {
  const dir = await temporaryDirectory(t);
  const { disks } = await makeStack(dir);
  const place = await smallFileSystem(t, "1024k");
  await assert.rejects(mergeDisks(disks, join(place, "out")), (error) => {
    assert.equal(toAppError(error).code, "disk_full", String(error));
    return true;
  });
});

async function makeStacked(t: TestContext): Promise<{ store: Store; top: StoredSnapshot; expected: Buffer }> {
  const store = await openStore(t);
  const { disks, rootfs } = await makeStack(await temporaryDirectory(t));
  const base = await makeSnapshot(store, "base");
  const middle = await makeLayered(store, "middle", base, new Map([[1, 1]]));
  await using draft = await store.draft("top");
  await fillLayer(draft, new Map([[2, 2]]));
  for (const path of [draft.path("rootfs"), draft.diskPath(0)]) await rm(path);
  await draft.share(draft.path("rootfs"), rootfs);
  for (const [index, path] of disks.entries()) await draft.share(draft.diskPath(index), path);
  const top = await draft.commit(branchFacts(middle));
  const flat = await readFile(snapshotFile(base, "memory"));
  return { store, top, expected: overlay(overlay(flat, new Map([[1, 1]])), new Map([[2, 2]])) };
}

test("compact() makes a snapshot with the same state that depends on no other", async (t) => {
  const { store, top, expected } = await makeStacked(t);
  const steps: string[] = [];
  const compact = await store.compact(top, "alone", { onProgress: (step) => void steps.push(step) });
  assert.deepEqual(steps, ["memory", "disks", "seal"]);
  assert.deepEqual(await store.get("alone"), compact);
  assert.deepEqual(compact.manifest.origin, { kind: "compact", of: "top" });
  assert.equal(compact.manifest.parent, undefined);
  assert.deepEqual(compact.manifest.machine, top.manifest.machine);
  assert.equal(snapshotDisks(compact).length, 1);
  const chains = [top, compact].map((each) => diskChain(snapshotDisks(each), snapshotFile(each, "rootfs")));
  await runProgram("qemu-img", ["compare", ...chains]);
  const files = ["devices", "rootfs"] as const;
  for (const role of files) {
    assert.equal((await stat(snapshotFile(compact, role))).ino, (await stat(snapshotFile(top, role))).ino);
  }
  await store.verify(top, { always: true });
  for (const tag of ["top", "middle", "base"]) await store.remove(tag);
  await store.evict();
  await store.verify(compact, { always: true });
  assert.ok((await readFile(await store.flatMemory(compact))).equals(expected));
  assert.deepEqual(
    (await namesIn(store.root)).filter((name) => !name.startsWith("alone")),
    [],
  );
});

test("compact() shares all files of a flat snapshot with one disk", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const compact = await store.compact(base, "alone");
  assert.equal((await store.sizes(compact)).ownPhysicalBytes, 0);
  assert.deepEqual(compact.manifest.files, base.manifest.files);
});

test("compact() leaves no files when the tag is taken, the chain damaged or the request cancelled", async (t) => {
  const { store, top } = await makeStacked(t);
  const before = await namesIn(store.root);
  await rejectsWith(store.compact(top, "base"), "snapshot_exists", /"base"/);
  await assert.rejects(store.compact(top, "alone", { signal: AbortSignal.abort() }), { name: "AbortError" });
  await store.remove("base");
  await rejectsWith(store.compact(top, "alone"), "snapshot_corrupt", /its parent "base" is missing/);
  assert.deepEqual(
    await namesIn(store.root),
    before.filter((name) => !name.startsWith("base")),
  );
});
