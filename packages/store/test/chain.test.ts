import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { maxChainDepth, maxLineage, walkChain } from "../src/chain.ts";
import type { StoredSnapshot } from "../src/snapshot.ts";
import { rejectsWith } from "@forkd/test-support";
import { facts, fill, makeLayered, makeSnapshot, openStore, reopen } from "./support.ts";

const onePage = new Map([[1, 1]]);

test("chain() leads from a snapshot to the flat one, also after the store is reopened", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const middle = await makeLayered(store, "middle", base, onePage);
  const top = await makeLayered(store, "top", middle, onePage);
  assert.deepEqual(await store.chain(top), [top, middle, base]);
  assert.deepEqual(await store.chain(base), [base]);
  const later = await reopen(store);
  assert.deepEqual(await later.chain(await later.get("top")), [top, middle, base]);
});

test("the id of a snapshot is the digest of the manifest's bytes", async (t) => {
  const store = await openStore(t);
  const { id, dir } = await makeSnapshot(store, "py");
  const path = join(dir, "manifest.json");
  const { manifest_digest: _, ...older } = JSON.parse(await readFile(path, "utf8")) as Record<
    string,
    unknown
  >;
  await writeFile(path, JSON.stringify(older));
  assert.match(id, /^[0-9a-f]{64}$/);
  assert.notEqual((await store.get("py")).id, id);
});

test("chain() names a parent that is missing, failed, unreadable or replaced", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const child = await makeLayered(store, "child", base, onePage);
  const grandchild = await makeLayered(store, "grandchild", child, onePage);
  await store.remove("base");
  const missing = {
    name: "ForkdError",
    code: "snapshot_corrupt",
    message: /"child": its parent "base" is missing$/,
    remedy: { action: "remake_snapshot", tag: "child" },
  };
  await assert.rejects(store.chain(child), missing);
  await assert.rejects(store.chain(grandchild), missing);
  await assert.rejects(store.verify(grandchild), missing);
  await assert.rejects(store.flatMemory(grandchild), missing);
  await store.fail("base", "no luck");
  await assert.rejects(store.chain(child), missing);
  await makeSnapshot(store, "base", "other content");
  await rejectsWith(store.chain(child), "snapshot_corrupt", /"child": its parent "base" was replaced/);
  await rm(join(base.dir, "manifest.json"));
  await rejectsWith(store.chain(child), "snapshot_corrupt", /its parent "base" cannot be read/);
});

test("chain() refuses a parent with another memory size", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const child = await makeLayered(store, "child", base, onePage);
  const path = join(child.dir, "manifest.json");
  const manifest = { ...child.manifest, machine: { ...child.manifest.machine, memory_mib: 4 } };
  await writeFile(path, JSON.stringify(manifest));
  await rejectsWith(store.chain(await store.get("child")), "snapshot_corrupt", /has another memory size/);
});

test("chain() refuses a chain of more than maxChainDepth snapshots", async (t) => {
  const store = await openStore(t);
  let head: StoredSnapshot = await makeSnapshot(store, "s0");
  for (let depth = 1; depth < maxChainDepth; depth++)
    head = await makeLayered(store, `s${depth}`, head, onePage);
  assert.equal((await store.chain(head)).length, maxChainDepth);
  await store.verify(head);
  const beyond = await makeLayered(store, "beyond", head, onePage);
  await rejectsWith(store.chain(beyond), "snapshot_corrupt", /chain is longer than 32/);
});

test("a chain with whole memories in between has at most maxLineage snapshots", async (t) => {
  const store = await openStore(t);
  const flat = await makeSnapshot(store, "s0");
  const lineage = (length: number): Map<string, StoredSnapshot> => {
    const all = new Map([["s0", flat]]);
    for (let nth = 1; nth < length; nth++) {
      const parent = { tag: `s${nth - 1}`, id: nth === 1 ? flat.id : `id${nth - 1}` };
      all.set(`s${nth}`, { ...flat, tag: `s${nth}`, id: `id${nth}`, manifest: { ...flat.manifest, parent } });
    }
    return all;
  };
  const walk = async (length: number) => {
    const all = lineage(length);
    const get = async (tag: string) => all.get(tag) ?? flat;
    return walkChain(await get(`s${length - 1}`), { get, hasImage: async () => true });
  };
  assert.equal((await walk(maxLineage)).length, maxLineage);
  await rejectsWith(walk(maxLineage + 1), "snapshot_corrupt", /longer than 1000 snapshots/);
});

test("dependents() lists direct dependents, descendants() lists all of them, leaves first", async (t) => {
  const store = await openStore(t);
  const base = await makeSnapshot(store, "base");
  const a = await makeLayered(store, "a", base, onePage);
  await makeLayered(store, "b", base, onePage);
  const aa = await makeLayered(store, "aa", a, onePage);
  await makeLayered(store, "aaa", aa, onePage);
  await store.fail("broken", "no luck", "base");
  assert.deepEqual(await store.dependents("base"), ["a", "b"]);
  assert.deepEqual(await store.dependents("a"), ["aa"]);
  assert.deepEqual(await store.dependents("b"), []);
  assert.deepEqual(await store.descendants("base"), ["aaa", "aa", "a", "b"]);
  assert.deepEqual(await store.descendants("aaa"), []);
  await store.remove("base");
  assert.deepEqual(await store.dependents("base"), ["a", "b"], "they still name it");
  await using draft = await store.draft("base");
  await fill(draft, "other");
  await draft.commit(facts());
  assert.deepEqual(await store.dependents("base"), [], "their parent was another snapshot");
});
