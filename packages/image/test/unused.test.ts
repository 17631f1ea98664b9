import assert from "node:assert/strict";
import { link, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { ImageLease } from "../src/lease.ts";
import { removeUnusedImages } from "../src/unused.ts";
import { namesIn } from "./support.ts";

/** Above the largest pid of Linux, so that no such process exists. */
const noPid = 2 ** 22 + 1;

async function addEntry(images: string, path: string, info?: object): Promise<string> {
  const directory = join(images, path);
  await mkdir(directory, { recursive: true });
  await writeFile(join(directory, "file"), Buffer.alloc(8192, 1));
  if (info) await writeFile(join(directory, "info.json"), JSON.stringify(info));
  return directory;
}

test("removeUnusedImages() removes what no snapshot names or links and no build uses", async (t) => {
  const root = await temporaryDirectory(t);
  const images = join(root, "images");
  await addEntry(images, "rootfs/unused-0123456789", { digest: "a", source: "/home/me/ds" });
  await addEntry(images, "rootfs/named", { digest: "b", source: "x" });
  const linked = await addEntry(images, "rootfs/linked", { digest: "c", source: "x" });
  await link(join(linked, "file"), join(root, "snapshot"));
  const leased = await addEntry(images, "rootfs/leased", { digest: "d", source: "x" });
  await addEntry(images, "rootfs/incomplete");
  await addEntry(images, "kernel/old", { digest: "b", version: "6.1.0-1" });
  await addEntry(images, `initramfs/.tmp-${noPid}-aa`);
  await addEntry(images, `initramfs/.tmp-${process.pid}-bb`);
  await addEntry(images, "blobs/0123456789abcdef", { digest: "sha256:0", source: "app:1" });
  await addEntry(images, `blobs/.tmp-${noPid}-cc`);
  const leasedLayer = await addEntry(images, "blobs/leased", { digest: "sha256:1", source: "app:1" });
  using lease = new ImageLease();
  lease.hold(leasedLayer);
  lease.hold(leased);
  const isUsed = (kind: string, digest: string): boolean => kind === "rootfs" && digest === "b";

  const before = await namesIn(images);
  const would = await removeUnusedImages(images, { isUsed, dryRun: true });
  assert.deepEqual(await namesIn(images), before, "a dry run removes nothing");
  const removed = await removeUnusedImages(images, { isUsed, dryRun: false });
  assert.deepEqual(removed, would);
  assert.deepEqual(removed.map(({ name, source }) => [name, source]).sort(), [
    [`blobs/.tmp-${noPid}-cc`, undefined],
    ["blobs/0123456789ab", "app:1"],
    [`initramfs/.tmp-${noPid}-aa`, undefined],
    ["kernel/old", "6.1.0-1"],
    ["rootfs/incomplete", undefined],
    ["rootfs/unused-01234", "/home/me/ds"],
  ]);
  assert.ok(removed.every(({ bytes }) => bytes >= 8192));
  assert.deepEqual(
    (await namesIn(images)).filter(
      (name) => name.includes("/") && !name.includes("file") && !name.includes("info"),
    ),
    ["blobs/leased", `initramfs/.tmp-${process.pid}-bb`, "rootfs/leased", "rootfs/linked", "rootfs/named"],
  );
  assert.deepEqual(await removeUnusedImages(join(root, "none"), { isUsed, dryRun: false }), []);
});

test("collections at the same time remove each image once, and none of them fails", async (t) => {
  const images = await temporaryDirectory(t);
  for (let nth = 0; nth < 10; nth++) {
    await addEntry(images, `rootfs/unused-${nth}`, { digest: String(nth) });
    await addEntry(images, `packages/release-${nth}/inner`);
  }
  const all = await Promise.all(
    Array.from({ length: 8 }, () => removeUnusedImages(images, { isUsed: () => false, dryRun: false })),
  );
  const names = all.flat().map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  assert.equal(names.filter((name) => name.startsWith("rootfs/")).length, 10);
});
