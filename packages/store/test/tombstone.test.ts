import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Store } from "../src/store.ts";
import { rejectsWith } from "@forkd/test-support";
import {
  facts,
  fill,
  makeSnapshot,
  namesIn,
  needsRoot,
  openAt,
  openStore,
  reopen,
  smallFileSystem,
} from "./support.ts";

async function failuresIn(store: Store): Promise<unknown[]> {
  return (await store.list()).map((entry) =>
    "problem" in entry ? [entry.tag, entry.kind, entry.problem, entry.branchedFrom] : entry.tag,
  );
}

test("reopening a store turns an announced draft of a crash into a tombstone without files", async (t) => {
  const store = await openStore(t);
  const draft = await store.draft("child", { announce: { branchedFrom: "base" } });
  await fill(draft);
  await store.draft("unnamed");
  await store.draft("built", { announce: {} });
  const later = await reopen(store);
  const reason = "the daemon ended while it was written";
  assert.deepEqual(await failuresIn(later), [
    ["built", "failed", reason, undefined],
    ["child", "failed", reason, "base"],
  ]);
  assert.deepEqual(await namesIn(later.root), ["built", "built/failed.json", "child", "child/failed.json"]);
  await assert.rejects(later.get("child"), {
    name: "ForkdError",
    code: "snapshot_failed",
    message: /"child": it failed: the daemon ended while it was written$/,
    remedy: { action: "remake_snapshot", tag: "child" },
  });
  assert.deepEqual(await failuresIn(await reopen(later)), await failuresIn(later));
});

test("the tombstone of a leftover draft replaces an older tombstone, but not a snapshot", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "py");
  await store.draft("py", { replace: true, announce: {} });
  await store.fail("bad", "an older reason");
  await store.draft("bad", { announce: { branchedFrom: "py" } });
  assert.deepEqual(await failuresIn(await reopen(store)), [
    ["bad", "failed", "the daemon ended while it was written", "py"],
    "py",
  ]);
  assert.deepEqual(
    (await namesIn(store.root)).filter((name) => name.startsWith(".")),
    [],
  );
});

test("a leftover draft with an unreadable record is removed without a tombstone", async (t) => {
  const store = await openStore(t);
  const texts = ["", "{", "[]", '{"tag":"../../x","created_at_unix":1}', '{"tag":"x"}'];
  for (const [index, text] of texts.entries()) {
    await mkdir(join(store.root, `.draft-${index}`));
    await writeFile(join(store.root, `.draft-${index}`, "draft.json"), text);
  }
  await writeFile(join(store.root, ".draft-file"), "not a directory");
  assert.deepEqual(await failuresIn(await reopen(store)), []);
  assert.deepEqual(await namesIn(join(store.root, "..")), [
    "cache",
    "cache/memory",
    "cache/memory-views",
    "snapshots",
  ]);
});

test("a published draft has no draft record", async (t) => {
  const store = await openStore(t);
  await using draft = await store.draft("py", { announce: { branchedFrom: "base" } });
  assert.match(await readFile(join(draft.dir, "draft.json"), "utf8"), /"branched_from":"base"/);
  await fill(draft);
  await draft.commit(facts());
  assert.ok(!(await namesIn(store.root)).includes("py/draft.json"));
  assert.deepEqual(await failuresIn(await reopen(store)), ["py"]);
});

test("fail() writes a tombstone, which remove() removes", async (t) => {
  const store = await openStore(t);
  await store.fail("bad", "first reason", "base");
  await store.fail("bad", "second reason");
  assert.deepEqual(await failuresIn(store), [["bad", "failed", "second reason", undefined]]);
  await rejectsWith(store.get("bad"), "snapshot_failed", /second reason/);
  await store.remove("bad");
  assert.deepEqual(await namesIn(store.root), []);
  await rejectsWith(store.get("bad"), "snapshot_not_found", /"bad"/);
});

test("fail() does not change an existing snapshot", async (t) => {
  const store = await openStore(t);
  const snapshot = await makeSnapshot(store, "py");
  await store.fail("py", "the replacement failed");
  assert.deepEqual(await store.get("py"), snapshot);
  await store.verify(snapshot, { always: true });
  assert.deepEqual(await failuresIn(store), ["py"]);
});

test("a draft may use the tag of a tombstone", async (t) => {
  const store = await openStore(t);
  await store.fail("py", "no luck");
  await using draft = await store.draft("py");
  await fill(draft);
  await store.fail("py", "no luck again");
  await draft.commit(facts());
  await store.verify(await store.get("py"), { always: true });
  assert.deepEqual(await failuresIn(store), ["py"]);
  assert.deepEqual(
    (await namesIn(store.root)).filter((name) => /failed|^\./.test(name)),
    [],
  );
});

test("publish() refuses the second of two drafts over a tombstone", async (t) => {
  const store = await openStore(t);
  await store.fail("py", "no luck");
  await using first = await store.draft("py");
  await using second = await store.draft("py");
  await fill(first, "first");
  await fill(second, "second");
  await Promise.all([first.seal(facts(1)), second.seal(facts(2))]);
  const results = await Promise.allSettled([first.publish(), second.publish()]);
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 1);
  await store.verify(await store.get("py"), { always: true });
});

test("fail() on a full disk keeps the failure in memory", needsRoot, async (t) => {
  const place = await smallFileSystem(t, "64k");
  const store = await openAt(place);
  await assert.rejects(writeFile(join(place, "ballast"), Buffer.alloc(1 << 20, 1)), { code: "ENOSPC" });
  await store.fail("bad", "the disk is full", "base");
  assert.deepEqual(await namesIn(store.root), []);
  assert.deepEqual(await failuresIn(store), [["bad", "failed", "the disk is full", "base"]]);
  await rejectsWith(store.get("bad"), "snapshot_failed", /the disk is full/);
  await store.remove("bad");
  await rejectsWith(store.get("bad"), "snapshot_not_found", /"bad"/);
});

test("removeFailed() removes a tombstone, but not a snapshot", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "base");
  await store.fail("gone", "no reason");
  await store.removeFailed("gone");
  await store.removeFailed("base");
  assert.deepEqual(
    (await store.list()).map(({ tag }) => tag),
    ["base"],
  );
});
