import assert from "node:assert/strict";
import { link, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { runProgram } from "@forkd/base";
import { z } from "zod";
import { ensureEntry, removeEntry, requireSpace } from "../src/cache.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { ImageLease } from "../src/lease.ts";
import { namesIn } from "./support.ts";

const info = z.object({ n: z.number() });

test("ensureEntry() builds once for concurrent callers, and not at all when the entry exists", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  let builds = 0;
  const ensure = (): Promise<{ n: number; directory: string }> =>
    ensureEntry({
      parent,
      digest: "abc",
      info,
      build: async (directory) => {
        builds++;
        await sleep(20);
        await writeFile(join(directory, "file"), "content");
        return { n: builds };
      },
    });
  const results = await Promise.all([ensure(), ensure(), ensure()]);
  assert.deepEqual(results, Array(3).fill({ n: 1, directory: join(parent, "abc") }));
  assert.equal((await ensure()).n, 1);
  assert.deepEqual(await namesIn(parent), ["abc", "abc/file", "abc/info.json"]);
});

test("ensureEntry() keeps its files for their owner alone", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  const build = async (directory: string): Promise<{ n: number }> => {
    await writeFile(join(directory, "rootfs.ext4"), "content", { mode: 0o644 });
    return { n: 1 };
  };
  await ensureEntry({ parent, digest: "abc", info, build });
  const modes = ["", "abc", "abc/info.json", "abc/rootfs.ext4"].map(
    async (name) => (await stat(join(parent, name))).mode & 0o777,
  );
  assert.deepEqual(await Promise.all(modes), [0o700, 0o700, 0o600, 0o600]);
});

test("ensureEntry() leaves nothing behind when a build fails, and the next caller builds", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  const build = (fail: boolean) => async (directory: string) => {
    await writeFile(join(directory, "file"), "content");
    if (fail) throw new Error("no luck");
    return { n: 1 };
  };
  const failing = ensureEntry({ parent, digest: "abc", info, build: build(true) });
  const waiting = ensureEntry({ parent, digest: "abc", info, build: build(false) });
  await assert.rejects(failing, /no luck/);
  assert.equal((await waiting).n, 1);
  await assert.rejects(ensureEntry({ parent, digest: "def", info, build: build(true) }), /no luck/);
  assert.deepEqual(await namesIn(parent), ["abc", "abc/file", "abc/info.json"]);
});

test("ensureEntry() uses the entry of another process that was faster", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  const build = async (): Promise<{ n: number }> => {
    await mkdir(join(parent, "abc"));
    await writeFile(join(parent, "abc", "info.json"), '{"n":7}');
    return { n: 1 };
  };
  assert.equal((await ensureEntry({ parent, digest: "abc", info, build })).n, 7);
  assert.equal(await readFile(join(parent, "abc", "info.json"), "utf8"), '{"n":7}');
  assert.deepEqual(await namesIn(parent), ["abc", "abc/info.json"]);
});

test("ensureEntry() rejects a cancelled caller while another one builds", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  const controller = new AbortController();
  let finish = (): void => undefined;
  const finished = new Promise<void>((resolve) => (finish = resolve));
  const build = async (): Promise<{ n: number }> => {
    await finished;
    return { n: 1 };
  };
  const first = ensureEntry({ parent, digest: "abc", info, build });
  const second = ensureEntry({ parent, digest: "abc", info, build, signal: controller.signal });
  controller.abort();
  await rejectsWith(second, "cancelled", /cancelled/);
  finish();
  assert.equal((await first).n, 1);
});

test("ensureEntry() removes incomplete builds of processes that have exited", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  const { stdout } = await runProgram("sh", ["-c", "echo $$"]);
  await mkdir(join(parent, `.tmp-${stdout.trim()}-abc`, "tree"), { recursive: true });
  await mkdir(join(parent, `.tmp-${process.pid}-abc`), { recursive: true });
  await ensureEntry({ parent, digest: "abc", info, build: async () => ({ n: 1 }) });
  assert.deepEqual(await namesIn(parent), [`.tmp-${process.pid}-abc`, "abc", "abc/info.json"]);
});

test("requireSpace() reports the needed and the free space", async (t) => {
  const dir = await temporaryDirectory(t);
  await requireSpace(dir, 1);
  await rejectsWith(
    requireSpace(dir, 2 ** 60),
    "disk_full",
    /1099511627776 MiB are needed and \d+ MiB are free/,
  );
});

test("ensureEntry() with isFresh replaces an entry, and files that are linked elsewhere stay", async (t) => {
  const dir = await temporaryDirectory(t);
  const parent = join(dir, "kind");
  let builds = 0;
  const build = async (directory: string): Promise<{ n: number }> => {
    await writeFile(join(directory, "file"), `content ${++builds}`);
    if (builds === 3) throw new Error("no network");
    return { n: builds };
  };
  const ensure = (isFresh?: boolean) => ensureEntry({ parent, digest: "abc", info, build, isFresh });
  await ensure();
  await link(join(parent, "abc", "file"), join(dir, "snapshot"));
  assert.equal((await ensure(true)).n, 2);
  assert.equal(await readFile(join(parent, "abc", "file"), "utf8"), "content 2");
  assert.equal(await readFile(join(dir, "snapshot"), "utf8"), "content 1");
  await assert.rejects(ensure(true), /no network/);
  assert.equal((await ensure()).n, 2, "a failed build leaves the old entry");
  assert.deepEqual(await namesIn(parent), ["abc", "abc/file", "abc/info.json"]);
});

test("removeEntry() waits for the build of an entry, and leaves one that is in use", async (t) => {
  const parent = join(await temporaryDirectory(t), "kind");
  const lease = new ImageLease();
  const building = ensureEntry({
    parent,
    digest: "abc",
    info,
    lease,
    build: async (directory) => {
      await sleep(20);
      await writeFile(join(directory, "file"), "content");
      return { n: 1 };
    },
  });
  const entry = join(parent, "abc");
  assert.equal(await removeEntry(entry), false, "the build has begun");
  await building;
  assert.equal(await removeEntry(entry), false, "the build uses it");
  lease[Symbol.dispose]();
  assert.equal(await removeEntry(entry), true);
  assert.deepEqual(await namesIn(parent), []);
});
