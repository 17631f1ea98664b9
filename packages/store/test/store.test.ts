import assert from "node:assert/strict";
import {
  cp,
  mkdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { basename, join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { readSnapshot, snapshotDisks, snapshotFile } from "../src/snapshot.ts";
import { rejectsWith } from "@forkd/test-support";
import {
  branchFacts,
  bytesRead,
  fillLayer,
  flipByte,
  makeLayered,
  makeSnapshot,
  mib,
  namesIn,
  openStore,
  reopen,
} from "./support.ts";

test("open() removes the leftovers of a crash and nothing more", async (t) => {
  const store = await openStore(t);
  const { root } = store;
  await makeSnapshot(store, "py");
  const before = await namesIn(root);
  for (const name of [".draft-0123456789abcdef", ".trash-0123456789abcdef"]) {
    await mkdir(join(root, name));
    await writeFile(join(root, name, "memory"), "half");
  }
  await mkdir(join(root, ".other"));
  await reopen(store);
  assert.deepEqual(await namesIn(root), [".other", ...before].sort());
});

test("get() finds a committed snapshot, also after the store is reopened", async (t) => {
  const store = await openStore(t);
  const made = await makeSnapshot(store, "py-3.13_a");
  const later = await reopen(store);
  assert.deepEqual(await later.get("py-3.13_a"), made);
  await later.verify(made);
});

test("get() fails with snapshot_not_found for an unknown or invalid tag", async (t) => {
  const store = await openStore(t);
  await writeFile(join(store.root, "..", "manifest.json"), "{}");
  for (const tag of ["nothing", "..", ".", "", "../snapshots", "a/b", ".draft-1"]) {
    await rejectsWith(store.get(tag), "snapshot_not_found", /Cannot find snapshot/);
  }
});

test("get() fails with snapshot_corrupt when the manifest is missing, cut or from another version", async (t) => {
  const store = await openStore(t);
  const { manifest } = await makeSnapshot(store, "good");
  const { files: _, ...withoutFiles } = manifest;
  const table: [string, string, RegExp][] = [
    ["cut", JSON.stringify(manifest).slice(0, 100), /"cut": its manifest cannot be read: SyntaxError/],
    ["empty", "", /manifest cannot be read/],
    ["version", JSON.stringify({ ...manifest, version: 1 }), /has version 1, .* version 2$/],
    ["no-version", JSON.stringify({ ...manifest, version: undefined }), /version/],
    ["key", JSON.stringify({ ...manifest, surprise: 1 }), /Unrecognized key: "surprise"/],
    ["files", JSON.stringify(withoutFiles), /files/],
    ["machine", JSON.stringify({ ...manifest, machine: { ...manifest.machine, vcpus: 0 } }), /vcpus/],
  ];
  for (const [tag, text, message] of table) {
    await mkdir(join(store.root, tag));
    await writeFile(join(store.root, tag, "manifest.json"), text);
    await rejectsWith(store.get(tag), "snapshot_corrupt", message);
    await assert.rejects(store.get(tag), { remedy: { action: "build_again", tag } });
  }
  await mkdir(join(store.root, "none"));
  await rejectsWith(store.get("none"), "snapshot_corrupt", /its manifest is missing/);
});

test("get() notices every changed byte of a manifest, and reads one without a digest", async (t) => {
  const store = await openStore(t);
  const { manifest, dir } = await makeSnapshot(store, "py");
  const path = join(dir, "manifest.json");
  const bytes = await readFile(path);
  for (let at = 0; at < bytes.length; at += 1) {
    const changed = Buffer.from(bytes);
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at);
    await writeFile(path, changed);
    await rejectsWith(readSnapshot(dir, "py"), "snapshot_corrupt", /its manifest/);
  }
  await writeFile(path, JSON.stringify(manifest));
  assert.deepEqual((await readSnapshot(dir, "py")).manifest, manifest);
});

test("get() refuses a manifest that is a link, a directory or a pipe", async (t) => {
  const store = await openStore(t);
  const { dir } = await makeSnapshot(store, "py");
  const path = join(dir, "manifest.json");
  await rename(path, `${path}.away`);
  await symlink(`${path}.away`, path);
  await rejectsWith(readSnapshot(dir, "py"), "snapshot_corrupt", /its manifest: it is a symbolic link/);
  await rm(path);
  await mkdir(path);
  await rejectsWith(readSnapshot(dir, "py"), "snapshot_corrupt", /its manifest: it is a directory/);
  await rm(path, { recursive: true });
  await runProgram("mkfifo", [path]);
  await rejectsWith(readSnapshot(dir, "py"), "snapshot_corrupt", /its manifest: it is a pipe/);
});

test("get() rereads a changed manifest", async (t) => {
  const store = await openStore(t);
  const { manifest, dir } = await makeSnapshot(store, "py");
  await writeFile(join(dir, "manifest.json"), JSON.stringify({ ...manifest, created_at_unix: 5 }));
  assert.equal((await store.get("py")).manifest.created_at_unix, 5);
});

test("list() is sorted, includes broken snapshots with their problem and omits drafts", async (t) => {
  const store = await openStore(t);
  assert.deepEqual(await store.list(), []);
  await makeSnapshot(store, "b");
  await makeSnapshot(store, "a");
  await mkdir(join(store.root, "broken"));
  await using _draft = await store.draft("c");
  const found = await store.list();
  assert.deepEqual(
    found.map(({ tag }) => tag),
    ["a", "b", "broken"],
  );
  assert.ok(found[0] && !("problem" in found[0]));
  assert.ok(found[2] && "problem" in found[2]);
  assert.match(found[2].problem, /manifest is missing/);
  assert.equal(found[2].kind, "corrupt");
});

test("verify() names a file with one changed bit", async (t) => {
  const store = await openStore(t);
  const flat = await makeSnapshot(store, "flat");
  const files = (["memory", "devices", "rootfs"] as const).map((role) => snapshotFile(flat, role));
  for (const path of [...files, ...snapshotDisks(flat)]) {
    await store.verify(flat);
    await flipByte(path, 3);
    const problem = new RegExp(`file "${basename(path)}" differs from its digest`);
    await rejectsWith(store.verify(flat), "snapshot_corrupt", problem);
    await flipByte(path, 3);
  }
  await store.verify(flat);
});

test("verify() reads the layers and the flat memory of the whole chain", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const middle = await makeLayered(store, "middle", base, new Map([[3, 1]]));
  const top = await makeLayered(store, "top", middle, new Map([[4, 1]]));
  const table: [string, RegExp][] = [
    [snapshotFile(top, "layer"), /"top": file "layer" is damaged: chunk 0/],
    [snapshotFile(middle, "layer"), /"top": file "layer" of its ancestor "middle" is damaged: chunk 0/],
    [snapshotFile(base, "memory"), /"top": file "memory" of its ancestor "base" differs/],
    [snapshotDisks(top)[0] ?? "", /"top": file "disk-0.qcow2" differs/],
  ];
  for (const [path, problem] of table) {
    await flipByte(path, 5000 % (await stat(path)).size);
    await rejectsWith(store.verify(top), "snapshot_corrupt", problem);
    await flipByte(path, 5000 % (await stat(path)).size);
    await store.verify(top, { always: true });
  }
  await flipByte(snapshotFile(middle, "layer"), 30);
  await rejectsWith(
    store.verify(top),
    "snapshot_corrupt",
    /"middle" is damaged: it has|"middle" is damaged: its/,
  );
  await flipByte(snapshotFile(middle, "layer"), 30);
  await flipByte(snapshotDisks(middle)[0] ?? "", 3);
  await store.verify(top, { always: true });
  await rm(snapshotFile(middle, "layer"));
  await rejectsWith(
    store.verify(top),
    "snapshot_corrupt",
    /file "layer" of its ancestor "middle" is missing/,
  );
});

test("verify() reads a file that many snapshots share only once", async (t) => {
  const store = await reopen(await openStore(t));
  const base = await makeSnapshot(store, "base");
  await writeFile(join(store.root, "..", "image"), Buffer.alloc(8 * mib, 5));
  const children = ["a", "b"].map(async (tag) => {
    await using draft = await store.draft(tag);
    await fillLayer(draft, new Map([[3, 1]]));
    await draft.share(draft.diskPath(1), join(store.root, "..", "image"));
    return await draft.commit(branchFacts(base));
  });
  const [a, b] = await Promise.all(children);
  assert.ok(a && b);
  const later = await reopen(store);
  await later.verify(a);
  const before = await bytesRead();
  await later.verify(b);
  assert.ok((await bytesRead()) - before < mib);
});

test("verify() finds a bit set in a hole, a longer file and a missing file", async (t) => {
  const store = await openStore(t);
  const snapshot = await makeSnapshot(store, "py");
  const memory = snapshotFile(snapshot, "memory");
  await flipByte(memory, mib + 5);
  await rejectsWith(store.verify(snapshot), "snapshot_corrupt", /"memory" differs/);
  await flipByte(memory, mib + 5);
  await truncate(memory, 4 * mib);
  await rejectsWith(store.verify(snapshot), "snapshot_corrupt", /"memory" differs/);
  await rm(memory);
  await rejectsWith(store.verify(snapshot), "snapshot_corrupt", /"memory" is missing/);
});

test("verify() reads a file once, and again when the file was touched or with always", async (t) => {
  const first = await openStore(t);
  const snapshot = await makeSnapshot(first, "py");
  const store = await reopen(first);
  const memory = snapshotFile(snapshot, "memory");
  const read = async (work: () => Promise<void>): Promise<number> => {
    const before = await bytesRead();
    await work();
    return (await bytesRead()) - before;
  };
  assert.ok((await read(() => store.verify(snapshot))) > mib);
  assert.ok((await read(() => store.verify(snapshot))) < mib / 2);
  assert.ok((await read(() => store.verify(snapshot, { always: true }))) > mib);
  await utimes(memory, 1, 1);
  assert.ok((await read(() => store.verify(snapshot))) > mib);
  assert.ok((await read(() => store.verify(snapshot))) < mib / 2);
});

test("verify() accepts a moved or copied directory and a renamed tag", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "py");
  await rename(join(store.root, "py"), join(store.root, "renamed"));
  await store.verify(await store.get("renamed"));
  await rejectsWith(store.get("py"), "snapshot_not_found", /"py"/);
  const elsewhere = await openStore(t);
  await cp(store.root, elsewhere.root, { recursive: true });
  await elsewhere.verify(await elsewhere.get("renamed"));
  assert.doesNotMatch(
    await readFile(join(elsewhere.root, "renamed", "manifest.json"), "utf8"),
    /forkd-store-/,
    "a manifest contains no path of the host",
  );
});

test("remove() leaves no files and frees the tag", async (t) => {
  const store = await openStore(t);
  await makeSnapshot(store, "py");
  await store.remove("py");
  assert.deepEqual(await namesIn(store.root), []);
  await rejectsWith(store.get("py"), "snapshot_not_found", /"py"/);
  await rejectsWith(store.remove("py"), "snapshot_not_found", /"py"/);
  await store.verify(await makeSnapshot(store, "py"));
});

test("remove() refuses an invalid tag", async (t) => {
  const store = await openStore(t);
  await mkdir(join(store.root, "..", "precious"));
  for (const tag of ["../precious", "..", ""]) {
    await rejectsWith(store.remove(tag), "snapshot_not_found", /Cannot find/);
  }
  assert.deepEqual(await namesIn(join(store.root, "..")), [
    "cache",
    "cache/memory",
    "cache/memory-views",
    "precious",
    "snapshots",
  ]);
});

test("sizes() counts own and linked files separately", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const { size, blocks } = await stat(snapshotFile(base, "memory"));
  const alone = await store.sizes(base);
  assert.ok(alone.logicalBytes > size && alone.logicalBytes < size + 200);
  assert.equal(alone.ownPhysicalBytes, blocks * 512 + 3 * 4096);
  assert.equal(alone.sharedPhysicalBytes, 0);
  await using draft = await store.draft("child");
  await draft.share(draft.path("memory"), snapshotFile(base, "memory"));
  assert.deepEqual(await store.sizes(base), {
    ...alone,
    ownPhysicalBytes: 3 * 4096,
    sharedPhysicalBytes: blocks * 512,
    ownBytes: 3 * 4096,
  });
  assert.equal(alone.totalBytes, blocks * 512 + 3 * 4096);
  assert.equal(await store.freedBytes([base]), 3 * 4096);
});

test("get() finds one snapshot or none while others remove and recreate it", async (t) => {
  const store = await openStore(t);
  let isWriting = true;
  const reader = async () => {
    while (isWriting) {
      await store.get("py").catch((error: unknown) => {
        assert.equal((error as { code?: string }).code, "snapshot_not_found", String(error));
      });
    }
  };
  const readers = Promise.all([reader(), reader(), reader(), reader()]);
  const writing = (async () => {
    for (let round = 0; round < 60; round++) {
      await makeSnapshot(store, "py");
      await store.remove("py");
    }
  })().finally(() => (isWriting = false));
  await Promise.all([readers, writing]);
});
