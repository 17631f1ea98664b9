import assert from "node:assert/strict";
import { mkdtemp, readFile, rmdir, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { toAppError } from "@forkd/contract";
import { runCommand } from "@forkd/base";
import { Store } from "../src/store.ts";
import { facts, fill, makeSnapshot, namesIn, openStore, rejectsWith, temporaryDirectory } from "./support.ts";

test("commit() writes a manifest with the digests of all files and moves the directory to its tag", async (t) => {
  const store = await openStore(t);
  await using draft = await store.draft("py", { replace: false });
  await fill(draft);
  const manifest = await draft.commit(facts());
  assert.deepEqual(await namesIn(store.root), [
    "py",
    "py/devices",
    "py/disk.qcow2",
    "py/manifest.json",
    "py/memory",
    "py/rootfs.ext4",
  ]);
  assert.deepEqual(JSON.parse(await readFile(join(store.root, "py", "manifest.json"), "utf8")), manifest);
  assert.equal(manifest.files.memory.bytes, 3 << 20);
  assert.equal(manifest.files.devices.bytes, "content of devices".length);
});

test("commit() is the end of the draft: disposing it leaves the snapshot alone", async (t) => {
  const store = await openStore(t);
  const snapshot = await makeSnapshot(store, "py");
  await store.verify(snapshot, { always: true });
});

test("draft() leaves nothing when it is disposed without commit", async (t) => {
  const store = await openStore(t);
  {
    await using draft = await store.draft("py", { replace: false });
    await fill(draft);
    assert.equal((await stat(draft.dir)).mode & 0o777, 0o700);
  }
  assert.deepEqual(await namesIn(store.root), []);
});

test("draft() refuses a tag that is taken before anything is written", async (t) => {
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

test("commit() replaces the snapshot of that tag when asked to, and works without one", async (t) => {
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

test("commit() fails without a manifest when a file is missing", async (t) => {
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
    await assert.rejects(draft.commit(facts(), AbortSignal.abort()), { name: "AbortError" });
  }
  assert.deepEqual(await namesIn(store.root), []);
});

test("share() links a file of the same file system", async (t) => {
  const store = await openStore(t);
  const source = join(await temporaryDirectory(t), "image");
  await writeFile(source, "shared bytes");
  await using draft = await store.draft("py", { replace: false });
  await draft.share("rootfs", source);
  assert.equal((await stat(draft.path("rootfs"))).ino, (await stat(source)).ino);
});

/** Mounted for one test. */
async function smallFileSystem(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-store-mount-"));
  let mounted = false;
  t.after(async () => {
    if (mounted) await runCommand("umount", [path]);
    await rmdir(path);
  });
  await runCommand("mount", ["-t", "tmpfs", "-o", "size=256k,mode=700", "forkd-test", path]);
  mounted = true;
  return path;
}

test(
  "commit() reports disk_full when the manifest does not fit, and nothing is left",
  { skip: process.getuid?.() === 0 ? false : "mounting a file system needs root" },
  async (t) => {
    const place = await smallFileSystem(t);
    const store = await Store.open(join(place, "snapshots"));
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

test(
  "share() copies where the source is on another file system",
  { skip: process.getuid?.() === 0 ? false : "mounting a file system needs root" },
  async (t) => {
    const store = await openStore(t);
    const source = join(await smallFileSystem(t), "image");
    await writeFile(source, "from another file system");
    await using draft = await store.draft("py", { replace: false });
    await draft.share("rootfs", source);
    assert.equal(await readFile(draft.path("rootfs"), "utf8"), "from another file system");
  },
);
