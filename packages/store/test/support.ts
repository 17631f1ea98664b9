/** Small snapshots in directories that are removed after the test. */
import { mkdtemp, open, readdir, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { runProgram, type Logger } from "@forkd/base";
import { manifestFacts } from "@forkd/test-support";
import type { Draft } from "../src/draft.ts";
import type { CacheLimits } from "../src/flat-cache.ts";
import { finishLayer } from "../src/finish-layer.ts";
import type { ManifestFacts } from "../src/manifest.ts";
import type { StoredSnapshot } from "../src/snapshot.ts";
import { Store } from "../src/store.ts";
import { writePages } from "./layer-model.ts";

export const mib = 1 << 20;

export async function openStore(t: TestContext): Promise<Store> {
  const path = await mkdtemp(join(tmpdir(), "forkd-store-"));
  const store = await openAt(path);
  t.after(async () => {
    await rm(path, { recursive: true, force: true });
  });
  return store;
}

/** Opens a store with root and cache below `place`, as a daemon does. */
export async function openAt(place: string, log?: Logger, cacheLimits?: CacheLimits): Promise<Store> {
  return Store.open(join(place, "snapshots"), {
    cacheDir: join(place, "cache", "memory"),
    ...(cacheLimits !== undefined && { cacheLimits }),
    ...(log !== undefined && { log }),
  });
}

/** Opens the same store again, as a later process does. */
export function reopen(store: Store, log?: Logger): Promise<Store> {
  return openAt(join(store.root, ".."), log);
}

export function cacheDirOf(store: Store): string {
  return join(store.root, "..", "cache", "memory");
}

export const needsRoot = {
  skip: process.getuid?.() === 0 ? false : "mounting a file system needs root",
};

/** Mounts a tmpfs for one test. */
export async function smallFileSystem(t: TestContext, size = "256k"): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-store-mount-"));
  let mounted = false;
  t.after(async () => {
    if (mounted) await runProgram("umount", [path]);
    await rmdir(path);
  });
  await runProgram("mount", ["-t", "tmpfs", "-o", `size=${size},mode=700`, "forkd-test", path]);
  mounted = true;
  return path;
}

/** All paths below a directory, including hidden ones. */
export async function namesIn(path: string): Promise<string[]> {
  return (await readdir(path, { recursive: true })).sort();
}

export function facts(created?: number): ManifestFacts {
  return manifestFacts({ memoryMib: 3, created });
}

/** Writes the files of a flat snapshot: 3 MiB of memory with a hole in the middle, and text in the others. */
export async function fill(draft: Draft, text = "content"): Promise<void> {
  await using memory = await open(draft.path("memory"), "wx");
  await memory.truncate(3 * mib);
  await memory.write(`${text} of the first page`, 0);
  await memory.write(`${text} of the last page`, 3 * mib - 64);
  await fillRest(draft, text);
}

async function fillRest(draft: Draft, text: string): Promise<void> {
  for (const role of ["devices", "rootfs"] as const) await writeFile(draft.path(role), `${text} of ${role}`);
  await writeFile(draft.diskPath(0), `${text} of the disk`);
}

export async function makeSnapshot(store: Store, tag: string, text?: string): Promise<StoredSnapshot> {
  await using draft = await store.draft(tag);
  await fill(draft, text);
  await draft.commit(facts());
  return store.get(tag);
}

export function branchFacts(parent: StoredSnapshot): ManifestFacts {
  return {
    ...facts(),
    origin: { kind: "branch", sandbox: "sb-000000000000000000000000", mode: "diff", pause_ms: 4.5 },
    parent: { tag: parent.tag, id: parent.id },
  };
}

/** Fills a draft with a layer of these pages (page number → byte that fills it). */
export async function fillLayer(draft: Draft, pages: ReadonlyMap<number, number>): Promise<void> {
  const shape = await writePages(draft.path("layer"), 3 * mib, pages);
  await finishLayer(draft.path("layer"), shape);
  await fillRest(draft, "content");
}

export async function makeLayered(
  store: Store,
  tag: string,
  parent: StoredSnapshot,
  pages: ReadonlyMap<number, number>,
): Promise<StoredSnapshot> {
  await using draft = await store.draft(tag);
  await fillLayer(draft, pages);
  return await draft.commit(branchFacts(parent));
}

export async function flipByte(path: string, at: number): Promise<void> {
  await using file = await open(path, "r+");
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, at);
  await file.write(Buffer.from([byte.readUInt8() ^ 1]), 0, 1, at);
}

/** Bytes that this process has read so far, from files and pipes. */
export async function bytesRead(): Promise<number> {
  return Number(/rchar: (\d+)/.exec(await readFile("/proc/self/io", "latin1"))?.[1]);
}
