import assert from "node:assert/strict";
import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { test, type TestContext } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { snapshotFile, type StoredSnapshot } from "../src/snapshot.ts";
import type { Store } from "../src/store.ts";
import { readAttachment } from "../src/verify.ts";
import { branchFacts, facts, fill, fillLayer, makeSnapshot, openStore } from "./support.ts";

/** A snapshot with both attachments. */
async function described(t: TestContext): Promise<{ store: Store; snapshot: StoredSnapshot }> {
  const store = await openStore(t);
  await using draft = await store.draft("base");
  await fill(draft);
  await writeFile(draft.path("sbom"), '{"spdxVersion":"SPDX-2.3"}\n');
  await writeFile(draft.path("recipe"), "an archive");
  return { store, snapshot: await draft.commit(facts()) };
}

test("a snapshot without attachments has none in its manifest", async (t) => {
  const store = await openStore(t);
  const plain = await makeSnapshot(store, "plain");
  assert.deepEqual(Object.keys(plain.manifest.files), ["memory", "devices", "disks", "rootfs"]);
  assert.equal(await readAttachment(plain, "sbom"), undefined);
});

test("attachments are digested, read and counted", async (t) => {
  const { store, snapshot } = await described(t);
  const again = await store.get("base");
  assert.equal(again.id, snapshot.id);
  assert.equal(String(await readAttachment(again, "recipe")), "an archive");
  assert.equal(JSON.parse(String(await readAttachment(again, "sbom"))).spdxVersion, "SPDX-2.3");
  const { size } = await stat(snapshotFile(again, "sbom"));
  assert.equal(again.manifest.files.sbom?.bytes, size);
  const plain = await store.sizes(await makeSnapshot(store, "plain"));
  const { logicalBytes } = await store.sizes(again);
  assert.equal(logicalBytes - plain.logicalBytes, size + "an archive".length);
});

test("a changed attachment is refused, but keeps no snapshot from being forked", async (t) => {
  const { store, snapshot } = await described(t);
  await writeFile(snapshotFile(snapshot, "sbom"), '{"spdxVersion":"SPDX-9.9"}\n');
  await rejectsWith(readAttachment(snapshot, "sbom"), "snapshot_corrupt");
  await store.verify(snapshot);
  await rejectsWith(store.verify(snapshot, { always: true }), "snapshot_corrupt");
  await rm(snapshotFile(snapshot, "sbom"));
  await rejectsWith(readAttachment(snapshot, "sbom"), "snapshot_corrupt");
});

test("a branch and a copy inherit attachments without reading them", async (t) => {
  const { store, snapshot } = await described(t);
  await using draft = await store.draft("branch");
  await fillLayer(draft, new Map([[1, 7]]));
  const known = await draft.inheritAttachments(snapshot);
  const branch = await draft.commit(branchFacts(snapshot), { known });
  assert.deepEqual(branch.manifest.files.sbom, snapshot.manifest.files.sbom);
  const copy = await store.compact(await store.get("branch"), "copy");
  assert.deepEqual(copy.manifest.files.recipe, snapshot.manifest.files.recipe);
  assert.deepEqual(await readFile(snapshotFile(copy, "recipe")), Buffer.from("an archive"));
  await store.verify(copy, { always: true });
});
