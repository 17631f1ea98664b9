import assert from "node:assert/strict";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { readAttachment, type Store, type StoredSnapshot } from "@forkd/store";
import { rejectsWith } from "@forkd/test-support";
import { archiveOf, makeFlat, makeLayered, openStore, unpack } from "./support.ts";

/** A copy of a snapshot, with a list of packages and a recipe. */
async function makeDescribed(store: Store, tag: string): Promise<StoredSnapshot> {
  const plain = await makeFlat(store, "plain");
  await using draft = await store.draft(tag);
  for (const role of ["memory", "devices", "rootfs"] as const)
    await draft.share(draft.path(role), join(plain.dir, role === "rootfs" ? "rootfs.ext4" : role));
  await draft.share(draft.diskPath(0), join(plain.dir, "disk-0.qcow2"));
  await writeFile(draft.path("sbom"), '{"spdxVersion":"SPDX-2.3"}\n');
  await writeFile(draft.path("recipe"), "an archive");
  const { version: _, files: __, ...facts } = plain.manifest;
  return await draft.commit(facts);
}

test("attachments travel with a chain, once", async (t) => {
  const [here, there] = [await openStore(t), await openStore(t)];
  const base = await makeDescribed(here, "base");
  const top = await makeLayered(here, "top", base);
  const unpacked = await unpack(there, await archiveOf(t, here, top));
  assert.deepEqual(
    unpacked.map(({ id }) => id),
    [base.id, top.id],
  );
  const arrived = await there.get("base");
  assert.equal(String(await readAttachment(arrived, "recipe")), "an archive");
  assert.equal(String(await readAttachment(arrived, "sbom")), '{"spdxVersion":"SPDX-2.3"}\n');
  assert.ok((await stat(join(arrived.dir, "sbom.spdx.json"))).size > 0);
});

test("a damaged attachment is refused where it is packed", async (t) => {
  const here = await openStore(t);
  const base = await makeDescribed(here, "base");
  const file = join(base.dir, "sbom.spdx.json");
  await writeFile(file, (await readFile(file, "utf8")).replace("2.3", "9.9"));
  await rejectsWith(archiveOf(t, here, base), "snapshot_corrupt", /sbom\.spdx\.json/);
});
