/** Work that is given up leaves nothing of its threads: no open files, no programs. */
import assert from "node:assert/strict";
import { readdir, readFile, readlink } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { archiveOf, makeLarge, openCache, openStore, unpack } from "./support.ts";
import { packSnapshot } from "../src/index.ts";

/** Times at which a thread is loading its modules, reading, or waiting for a program. */
const delaysMs = [0, 5, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 300];

async function openPaths(): Promise<string[]> {
  const descriptors = await readdir("/proc/self/fd");
  const paths = await Promise.all(
    descriptors.map((each) => readlink(`/proc/self/fd/${each}`).catch(() => "closed")),
  );
  return paths.filter((path) => path.startsWith("/") && !path.startsWith("/dev/")).sort();
}

async function childrenOfThis(): Promise<string[]> {
  const tasks = await readdir("/proc/self/task");
  const lists = await Promise.all(
    tasks.map((task) => readFile(`/proc/self/task/${task}/children`, "utf8").catch(() => "")),
  );
  return lists.flatMap((list) => list.split(" ").filter((pid) => pid !== ""));
}

test("packs that are cancelled at any moment leave no open file and no program", async (t) => {
  const store = await openStore(t);
  const snapshot = await makeLarge(store, "large");
  const before = await openPaths();
  let cancelled = 0;
  for (const delayMs of delaysMs) {
    const controller = new AbortController();
    const cache = await openCache(t);
    const packing = packSnapshot(store, snapshot, { cache, level: 9, signal: controller.signal });
    // On a fast host, the longest delays are longer than the work.
    const ended = packing.then(
      (packed) => packed[Symbol.asyncDispose](),
      (error: unknown) => {
        assert.equal(error, controller.signal.reason);
        cancelled++;
      },
    );
    await Promise.all([ended, setTimeout(delayMs).then(() => controller.abort())]);
    assert.deepEqual(await childrenOfThis(), [], `after ${delayMs} ms`);
  }
  assert.ok(cancelled > 0);
  assert.deepEqual(await openPaths(), before);
});

test("unpackings that fail at once leave no open file and no program", async (t) => {
  const source = await openStore(t);
  const archive = await archiveOf(t, source, await makeLarge(source, "large"));
  const store = await openStore(t);
  const before = await openPaths();
  for (const part of [0.2, 0.4, 0.6, 0.8, 0.95]) {
    const cut = archive.subarray(0, Math.floor(archive.length * part));
    await assert.rejects(unpack(store, cut), { code: "invalid_archive" });
    assert.deepEqual(await childrenOfThis(), []);
  }
  const refused = new Error("refused");
  for (let round = 0; round < 10; round++) {
    const onOpen = (): never => {
      throw refused;
    };
    await assert.rejects(unpack(store, archive, { onOpen }), refused);
  }
  assert.deepEqual(await openPaths(), before);
});
