import assert from "node:assert/strict";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { imagesDir } from "../../src/config.ts";
import { gc } from "../../src/operations/gc.ts";
import { status } from "../../src/operations/status.ts";
import { storageFindings } from "../../src/doctor/storage.ts";
import { addSnapshot, openTestRuntime } from "../support.ts";

test("gc() removes images that no snapshot uses only if the request selects them", async (t) => {
  const { runtime, config } = await openTestRuntime(t);
  // Its manifest names the root file system "r", the kernel "k" and the initramfs "i".
  await addSnapshot(runtime.store, "py");
  for (const [kind, digest] of [
    ["rootfs", "r"],
    ["rootfs", "old"],
    ["kernel", "k"],
    ["initramfs", "i"],
    ["initramfs", "old"],
  ] as const) {
    const directory = join(imagesDir(config), kind, `entry-${digest}`);
    await mkdir(directory, { recursive: true });
    await writeFile(join(directory, "file"), Buffer.alloc(4096, 1));
    await writeFile(join(directory, "info.json"), JSON.stringify({ digest, source: "/recipes/x" }));
  }
  const kinds = (): Promise<string[]> => readdir(join(imagesDir(config), "rootfs"));

  const usual = await gc(runtime, { dry_run: false });
  assert.deepEqual(usual.removed, []);
  assert.ok((usual.kept_image_bytes ?? 0) >= 2 * 4096);
  assert.ok(((await status(runtime)).image_cache_bytes ?? 0) >= 5 * 4096);
  const space = (await storageFindings(config)).find(({ name }) => name === "disk space");
  assert.match(space?.detail ?? "", /; image cache 0\.0 GiB$/);

  const would = await gc(runtime, { dry_run: true, images: true });
  assert.deepEqual((await kinds()).sort(), ["entry-old", "entry-r"]);
  const removed = await gc(runtime, { dry_run: false, images: true });
  assert.deepEqual(removed.removed, would.removed);
  assert.deepEqual(
    removed.removed.map(({ kind, name, source }) => `${kind} ${name} ${source}`),
    ["image rootfs/entry-old /recipes/x", "image initramfs/entry-old /recipes/x"],
  );
  assert.equal(removed.kept_image_bytes, undefined);
  assert.ok(removed.freed_bytes >= 2 * 4096);
  assert.deepEqual(await kinds(), ["entry-r"]);
});
