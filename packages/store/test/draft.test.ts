import assert from "node:assert/strict";
import { mkdir, readFile, rename, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { toAppError } from "@forkd/contract";
import { Draft } from "../src/draft.ts";
import { readSnapshot } from "../src/snapshot.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import {
  branchFacts,
  bytesRead,
  facts,
  fill,
  fillLayer,
  makeSnapshot,
  mib,
  namesIn,
  needsRoot,
  openAt,
  openStore,
  reopen,
  smallFileSystem,
} from "./support.ts";

test("commit() writes a manifest with the digests of all files and moves the directory to its tag", async (t) => {
  const store = await openStore(t);
  await using draft = await store.draft("py", { replace: false });
  await fill(draft);
  const { manifest } = await draft.commit(facts());
  assert.deepEqual(await namesIn(store.root), [
    "py",
    "py/devices",
    "py/disk-0.qcow2",
    "py/manifest.json",
    "py/memory",
    "py/rootfs.ext4",
  ]);
  const { manifest_digest: digest, ...written } = JSON.parse(
    await readFile(join(store.root, "py", "manifest.json"), "utf8"),
  ) as Record<string, unknown>;
  assert.deepEqual(written, manifest);
  assert.match(String(digest), /^[0-9a-f]{64}$/);
  assert.equal(manifest.files.memory?.bytes, 3 << 20);
  assert.equal(manifest.files.devices.bytes, "content of devices".length);
});

test("disposing a draft after commit() keeps the snapshot", async (t) => {
  const store = await openStore(t);
  const snapshot = await makeSnapshot(store, "py");
  await store.verify(snapshot, { always: true });
});

test("disposing a draft without commit() removes all its files", async (t) => {
  const store = await openStore(t);
  {
    await using draft = await store.draft("py", { replace: false });
    await fill(draft);
    assert.equal((await stat(draft.dir)).mode & 0o777, 0o700);
  }
  assert.deepEqual(await namesIn(store.root), []);
});

test("draft() refuses a taken tag before it writes anything", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "py");
  await rejectsWith(store.draft("py", { replace: false }), "snapshot_exists", /"py": the tag is taken/);
  assert.equal((await namesIn(store.root)).filter((name) => name.startsWith(".")).length, 0);
});

test("commit() refuses a tag that was taken while the draft was written", async (t) => {
  const store = await openStore(t);
  {
    await using draft = await store.draft("py", { replace: false });
    await fill(draft, "loser");
    await makeSnapshot(store, "py");
    await rejectsWith(draft.commit(facts(1)), "snapshot_exists", /the tag is taken/);
  }
  const winner = await store.get("py");
  assert.equal(winner.manifest.created_at_unix, facts().created_at_unix);
  await store.verify(winner);
  assert.equal((await namesIn(store.root)).filter((name) => name.startsWith(".")).length, 0);
});

test("commit() with replace replaces the snapshot of that tag, if there is one", async (t) => {
  const store = await openStore(t);
  for (const [created, text] of [
    [1, "first"],
    [2, "second"],
  ] as const) {
    await using draft = await store.draft("py", { replace: true });
    await fill(draft, text);
    await draft.commit(facts(created));
  }
  const snapshot = await store.get("py");
  assert.equal(snapshot.manifest.created_at_unix, 2);
  assert.equal(await readFile(join(snapshot.dir, "devices"), "utf8"), "second of devices");
  await store.verify(snapshot);
  assert.equal((await namesIn(store.root)).filter((name) => name.startsWith(".")).length, 0);
});

test("commit() fails and writes no manifest when a file is missing", async (t) => {
  const store = await openStore(t);
  {
    await using draft = await store.draft("py", { replace: false });
    await writeFile(draft.path("memory"), "only this one");
    await assert.rejects(draft.commit(facts()), /ENOENT/);
    assert.deepEqual(await namesIn(draft.dir), ["memory"]);
  }
  assert.deepEqual(await namesIn(store.root), []);
});

test("commit() stops when it is cancelled", async (t) => {
  const store = await openStore(t);
  {
    await using draft = await store.draft("py", { replace: false });
    await fill(draft);
    await assert.rejects(draft.commit(facts(), { signal: AbortSignal.abort() }), { name: "AbortError" });
  }
  assert.deepEqual(await namesIn(store.root), []);
});

test("share() links a file on the same file system", async (t) => {
  const store = await openStore(t);
  const source = join(await temporaryDirectory(t), "image");
  await writeFile(source, "shared bytes");
  await using draft = await store.draft("py", { replace: false });
  await draft.share(draft.path("rootfs"), source);
  assert.equal((await stat(draft.path("rootfs"))).ino, (await stat(source)).ino);
});

test(
  "commit() reports disk_full when the manifest does not fit, and leaves no files",
  needsRoot,
  async (t) => {
    const place = await smallFileSystem(t);
    const store = await openAt(place);
    {
      await using draft = await store.draft("py", { replace: false });
      await fill(draft);
      const ballast = writeFile(join(place, "ballast"), Buffer.alloc(1 << 20, 1));
      await assert.rejects(ballast, { code: "ENOSPC" });
      const failure = await draft.commit(facts()).then(
        () => assert.fail("committed without room"),
        (error: unknown) => error,
      );
      assert.equal(toAppError(failure).code, "disk_full", String(failure));
      assert.equal((await namesIn(draft.dir)).length, 4, "no manifest, no temporary file");
    }
    assert.deepEqual(await namesIn(store.root), []);
  },
);

test("share() copies a file from another file system", needsRoot, async (t) => {
  const store = await openStore(t);
  const source = join(await smallFileSystem(t), "image");
  await writeFile(source, "from another file system");
  await using draft = await store.draft("py", { replace: false });
  await draft.share(draft.path("rootfs"), source);
  assert.equal(await readFile(draft.path("rootfs"), "utf8"), "from another file system");
});

test("commit() accepts a layer with its parent and several disks", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  await using draft = await store.draft("child");
  await fillLayer(draft, new Map([[7, 1]]));
  await writeFile(draft.diskPath(1), "second disk");
  await writeFile(draft.diskPath(2), "third disk");
  const snapshot = await draft.commit(branchFacts(base));
  const { files, parent } = snapshot.manifest;
  assert.equal(files.memory, undefined);
  assert.equal(files.layer?.pages, 1);
  assert.deepEqual(
    files.disks.map(({ bytes }) => bytes),
    ["content of the disk".length, 11, 10],
  );
  assert.deepEqual(parent, { tag: "base", id: base.id });
  assert.deepEqual(await store.get("child"), snapshot);
});

test("seal() refuses files that do not form a snapshot", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const attempt = async (prepare: (draft: Draft) => Promise<void>, given = facts()) => {
    await using draft = await store.draft("child");
    await prepare(draft);
    await draft.seal(given);
  };
  const layer = (draft: Draft) => fillLayer(draft, new Map([[7, 1]]));
  await assert.rejects(attempt(layer), /a layer needs a parent/);
  await assert.rejects(attempt(fill, branchFacts(base)), /only a layer may have one/);
  const both = async (draft: Draft) => {
    await layer(draft);
    await writeFile(draft.path("memory"), Buffer.alloc(3 * mib));
  };
  await assert.rejects(attempt(both, branchFacts(base)), /either memory or a layer/);
  const gap = async (draft: Draft) => {
    await fill(draft);
    await writeFile(draft.diskPath(2), "third without a second");
  };
  await assert.rejects(attempt(gap), /ENOENT.*disk-1/);
  const short = async (draft: Draft) => {
    await fill(draft);
    await truncate(draft.path("memory"), mib);
  };
  await assert.rejects(attempt(short), /must be the memory size of the machine/);
  const otherSize = { ...branchFacts(base), machine: { ...facts().machine, memory_mib: 4 } };
  await assert.rejects(attempt(layer, otherSize), /for a memory of 3145728 bytes/);
  assert.deepEqual(
    (await namesIn(store.root)).filter((name) => !name.startsWith("base")),
    [],
  );
});

test("seal() does not read a file with a known digest, and refuses one with another length", async (t) => {
  const store = await openStore(t);
  const image = join(await temporaryDirectory(t), "image");
  await writeFile(image, Buffer.alloc(8 * mib, 5));
  const known = { bytes: 8 * mib, digest: "ab".repeat(32) };
  await using draft = await store.draft("py");
  await fill(draft);
  await draft.share(draft.diskPath(1), image);
  const before = await bytesRead();
  const { manifest } = await draft.seal(facts(), { known: new Map([[draft.diskPath(1), known]]) });
  assert.ok((await bytesRead()) - before < 6 * mib);
  assert.deepEqual(manifest.files.disks[1], known);
  const wrong = new Map([["rootfs", { ...known, bytes: 5 }]]);
  await assert.rejects(draft.seal(facts(), { known: wrong }), /rootfs.ext4: it has 17 bytes, not 5/);
});

test("verify() does not read again what seal() has read", async (t) => {
  const store = await openStore(t);
  const snapshot = await makeSnapshot(store, "py");
  const before = await bytesRead();
  await store.verify(snapshot);
  assert.ok((await bytesRead()) - before < mib / 2);
});

test("openIn() makes a snapshot outside the store that readSnapshot() reads", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const dir = await temporaryDirectory(t);
  {
    await using draft = await store.draftIn(dir, "saved", "sb-1");
    await fillLayer(draft, new Map([[7, 1]]));
    await draft.commit(branchFacts(base));
  }
  const saved = await readSnapshot(join(dir, "saved"), "sb-1");
  assert.deepEqual(
    (await store.chain(saved)).map(({ tag }) => tag),
    ["sb-1", "base"],
  );
  await store.verify(saved, { always: true });
  await rejectsWith(Draft.openIn(dir, "saved", "sb-1"), "snapshot_exists", /"sb-1"/);
  await using again = await Draft.openIn(dir, "saved", "sb-1", { replace: true });
  await fill(again);
  assert.equal((await again.commit(facts())).dir, join(dir, "saved"));
  assert.deepEqual(
    (await namesIn(dir)).filter((name) => name.startsWith(".")),
    [],
  );
  await rejectsWith(readSnapshot(join(dir, "nothing"), "sb-2"), "snapshot_not_found", /"sb-2"/);
  await mkdir(join(dir, "empty"));
  await rejectsWith(readSnapshot(join(dir, "empty"), "sb-2"), "snapshot_corrupt", /manifest is missing/);
});

test("a crash while one snapshot replaces another keeps one of them", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "py");
  await makeSnapshot(store, "other");
  await rename(join(store.root, "py"), join(store.root, ".replaced-0123456789abcdef-py"));
  await mkdir(join(store.root, ".replaced-0123456789abcdef-other"));
  await mkdir(join(store.root, ".replaced-"));
  await store.draft("py", { announce: {} });
  const later = await reopen(store);
  await later.verify(await later.get("py"));
  await later.verify(await later.get("other"));
  assert.deepEqual(
    (await namesIn(store.root)).filter((name) => name.startsWith(".")),
    [],
  );
});
