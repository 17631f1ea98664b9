/** Children of layered snapshots map the files of the chain. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { chmod, open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { rejectsWith } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { processExists } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python"] });
});
after(() => daemon[Symbol.asyncDispose]());

/** 8 MiB in the guest, of which each level writes its own pages and some of the level before. */
const setUp = `
import hashlib
data = bytearray(8 << 20)
levels = []
def write(level, pages):
    for page in pages:
        data[page * 4096:(page + 1) * 4096] = bytes([level, page % 251]) * 2048
    levels.append(level)
def seen():
    return [hashlib.sha256(data).hexdigest(), levels, [data[page * 4096] for page in (0, 1, 500, 999, 1000, 1500, 2047)]]
`;

async function value(sandbox: Sandbox, code: string): Promise<unknown> {
  const { resultJson, error } = await sandbox.eval(code);
  assert.equal(error, null);
  return resultJson;
}

/** Three levels: single pages, runs, adjacent runs of different levels, pages that all levels write. */
const writes = [
  "range(0, 1600, 2)",
  "range(400, 1000)",
  "list(range(1000, 1100)) + list(range(1, 1600, 97))",
];

/** Branches each level from a child of the one before. Returns what a child of each level must see. */
async function makeChain({ forkd }: TestDaemon, name: string): Promise<Map<string, unknown>> {
  const expected = new Map<string, unknown>();
  let from = "python";
  for (const [index, pages] of writes.entries()) {
    await using child = await forkd.create(from);
    if (index === 0) await value(child, setUp);
    await value(child, `write(${index + 1}, ${pages})`);
    from = `${name}-${index + 1}`;
    await child.branch({ tag: from });
    expected.set(from, await value(child, "seen()"));
  }
  return expected;
}

/** Files that the VMM maps as parts of the guest's memory. */
function mappedLayers({ info }: Sandbox): Set<string> {
  const maps = readFileSync(`/proc/${info.pid}/maps`, "utf8");
  return new Set([...maps.matchAll(/snapshots\/(\S+)\/(?:layer|memory)\b/g)].map(([, tag = ""]) => tag));
}

const flatImages = ({ dataDir }: TestDaemon) => readdirSync(join(dataDir, "cache/memory"));

test("children of every level of a chain see its bytes, and no memory is copied", async () => {
  const expected = await makeChain(daemon, "deep");
  for (const [tag, seen] of expected) {
    await using child = await daemon.forkd.create(tag);
    assert.deepEqual(await value(child, "seen()"), seen, tag);
  }
  await using child = await daemon.forkd.create("deep-3");
  const files = [...mappedLayers(child)].sort();
  assert.deepEqual(files.slice(0, 2), ["deep-1", "deep-2"]);
  assert.ok(files.includes("deep-3") && files.length >= 3);
  assert.deepEqual(flatImages(daemon), []);

  // A branch of a child of a view, with and without its children, and of all of its memory.
  await value(child, "write(4, range(1090, 1110))");
  const now = await value(child, "seen()");
  const { children } = await child.branch({ tag: "deep-4", n: 2 });
  for (const each of children) {
    assert.ok("id" in each);
    await using grandchild = await daemon.forkd.sandboxes.get(each.id);
    assert.deepEqual(await value(grandchild, "seen()"), now);
  }
  const full = await child.branch({ tag: "deep-full", mode: "full" });
  assert.deepEqual([full.mode, full.parentTag], ["full", undefined]);
  await using alone = await daemon.forkd.create("deep-full");
  assert.deepEqual(await value(alone, "seen()"), now);
  assert.deepEqual(flatImages(daemon), []);
  for (const tag of ["deep-4", "deep-full"]) await daemon.forkd.snapshots.info(tag, { verify: true });
});

test("a sandbox on a view can be paused, resumed and branched again", async () => {
  const expected = await makeChain(daemon, "rest");
  await using child = await daemon.forkd.create("rest-3");
  for (const round of [5, 6]) {
    await value(child, `write(${round}, range(${round}, 1200, 3))`);
    const before = await value(child, "seen()");
    await child.pause();
    await child.resume();
    assert.deepEqual(await value(child, "seen()"), before);
  }
  const now = await value(child, "seen()");
  await child.branch({ tag: "rested" });
  await using grandchild = await daemon.forkd.create("rested");
  assert.deepEqual(await value(grandchild, "seen()"), now);
  await child.rewind("rest-2");
  assert.deepEqual(await value(child, "seen()"), expected.get("rest-2"));
  assert.deepEqual(flatImages(daemon), []);
});

test("a restarted daemon branches machines on views", async () => {
  await withDaemons(["python"], async (start) => {
    const first = await start();
    const expected = await makeChain(first, "kept");
    const child = await first.forkd.create("kept-3");
    await value(child, "write(7, range(20, 60))");
    const now = await value(child, "seen()");
    await endDaemon(first, "SIGKILL");
    assert.ok(processExists(child.info.pid));
    const second = await start();
    const adopted = await second.forkd.sandboxes.get(child.id);
    assert.deepEqual(await value(adopted, "seen()"), now);
    await second.forkd.gc();
    // A new child gets another view; the machine keeps its own.
    await using other = await second.forkd.create("kept-3");
    assert.deepEqual(await value(other, "seen()"), expected.get("kept-3"));
    await adopted.branch({ tag: "after" });
    await using grandchild = await second.forkd.create("after");
    assert.deepEqual(await value(grandchild, "seen()"), now);
    await adopted.pause();
    await adopted.resume();
    assert.deepEqual(await value(adopted, "seen()"), now);
  });
});

test("a sandbox runs on when files of its chain are removed, and its branch names the missing snapshot", async () => {
  const expected = await makeChain(daemon, "lost");
  await using child = await daemon.forkd.create("lost-3");
  await daemon.forkd.snapshots.remove("lost-1", { force: true });
  assert.deepEqual(await value(child, "seen()"), expected.get("lost-3"));
  await rejectsWith(child.branch({ tag: "never" }), "snapshot_corrupt", /"lost-1" is missing/);
  await rejectsWith(daemon.forkd.create("lost-3"), "snapshot_corrupt", /"lost-1" is missing/);
  assert.deepEqual(await value(child, "write(8, range(3)) or seen()[1]"), [1, 2, 3, 8]);
  await daemon.forkd.snapshots.remove("lost-3", { force: true });
  await rejectsWith(child.branch({ tag: "never" }), "snapshot_not_found", /removed or replaced/);
  assert.deepEqual(await value(child, "levels"), [1, 2, 3, 8]);
});

test("a damaged layer is refused, also if a view of it is there", async () => {
  await makeChain(daemon, "hurt");
  await using child = await daemon.forkd.create("hurt-3");
  await using layer = await open(join(daemon.dataDir, "snapshots/hurt-2/layer"), "r+");
  await layer.write(Buffer.from("X"), 0, 1, 6000);
  const before = readdirSync(join(daemon.dataDir, "sandboxes")).length;
  await rejectsWith(daemon.forkd.create("hurt-3"), "snapshot_corrupt", /"hurt-2" is damaged/);
  assert.equal(readdirSync(join(daemon.dataDir, "sandboxes")).length, before);
  await child.kill();
});

test("children map a flat image where no library can be preloaded", async () => {
  const script = join(daemon.dir, "qemu");
  await writeFile(script, '#!/bin/sh\nexec qemu-system-x86_64 "$@"\n');
  await chmod(script, 0o755);
  await using other = await startDaemon({ snapshots: ["python"], env: { FORKD_QEMU_PATH: script } });
  const expected = await makeChain(other, "flat");
  const made = flatImages(other);
  const { id } = await other.forkd.snapshots.info("flat-3");
  assert.ok(!made.includes(id), "a branch makes no flat image");
  await using child = await other.forkd.create("flat-3");
  assert.deepEqual(await value(child, "seen()"), expected.get("flat-3"));
  assert.ok(flatImages(other).includes(id));
});
