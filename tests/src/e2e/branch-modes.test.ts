/** Branches as snapshots: modes, layers of the disk, branches that are still being written, their limit. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import type { ForkdError, Sandbox } from "@forkd/sdk";
import { until, rejectsWith } from "@forkd/test-support";
import { branchInto } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
});
// A test that fails must not leave sandboxes to the next tests.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

test("branch() refuses more concurrent branches than the limit and names the setting", async () => {
  await using small = await startDaemon({ snapshots: ["tiny"], env: { FORKD_BRANCH_CONCURRENCY: "1" } });
  const [a, b] = await Promise.all([small.forkd.create("tiny"), small.forkd.create("tiny")]);
  // The branch of a stopped VMM stays in progress.
  process.kill(a.info.pid ?? 0, "SIGSTOP");
  const first = a.branch({ tag: "one" });
  try {
    await until("the first branch is in progress", async () =>
      (await small.forkd.snapshots.list().all()).some(
        ({ tag, status }) => tag === "one" && status === "writing",
      ),
    );
    const { remedy } = await rejectsWith(
      b.branch({ tag: "two" }),
      "capacity_exhausted",
      /1 branch is in progress and the limit is 1$/,
    );
    assert.deepEqual(remedy, { action: "retry_later", setting: "branch_concurrency" });
  } finally {
    process.kill(a.info.pid ?? 0, "SIGCONT");
  }
  await first;
  await b.branch({ tag: "three" });
  assert.deepEqual(
    (await small.forkd.snapshots.list().all()).map(({ tag, status }) => [tag, status]),
    [
      ["one", "ready"],
      ["three", "ready"],
      ["tiny", "ready"],
    ],
  );
});

test("a branch with wait: false cannot be forked until it is ready", async () => {
  await using source = await daemon.forkd.create("python");
  await source.eval("x = 'early'");
  const branch = await source.branch({ tag: "later", wait: false });
  assert.deepEqual([branch.status, branch.bootable, branch.children], ["writing", false, []]);
  // A fork fails with the reason, unless the branch is already complete.
  const early = await daemon.forkd.fork("later").catch((error: unknown) => error);
  if (!Array.isArray(early)) {
    await rejectsWith(Promise.reject(early as Error), "snapshot_writing", /later/);
    const { code } = await source.branch({ tag: "later" }).then(
      () => assert.fail("two snapshots have the same tag"),
      (error: unknown) => error as ForkdError,
    );
    assert.ok(["snapshot_writing", "snapshot_exists"].includes(code), code);
  }
  await source.eval("x = 'late'");
  assert.equal((await daemon.forkd.snapshots.ready("later")).status, "ready");
  const child = await daemon.forkd.create("later");
  assert.equal((await child.eval("x")).resultJson, "early");
});

const modes = ["live", "diff", "full"] as const;

test("all modes make equal children, and mode full needs no parent", async () => {
  await using own = await startDaemon({ snapshots: ["python"] });
  const { forkd } = own;
  const source = await forkd.create("python");
  await source.eval("import hashlib\nx = list(range(100_000)); big = bytes(range(256)) * 20_000");
  await sh(source, "head -c 3000000 /dev/urandom > /root/data; sync");
  const digest =
    "[sum(x), hashlib.sha256(big).hexdigest(), hashlib.sha256(open('/root/data', 'rb').read()).hexdigest()]";
  const { resultJson: expected } = await source.eval(digest);
  const children: Sandbox[] = [];
  for (const mode of modes) children.push(...(await branchInto(source, { tag: mode, mode, n: 1 })).children);
  for (const child of children) {
    await sh(child, "sync; echo 3 > /proc/sys/vm/drop_caches");
    assert.deepEqual((await child.eval(digest)).resultJson, expected);
  }
  const infos = await Promise.all(modes.map((mode) => forkd.snapshots.info(mode)));
  assert.deepEqual(
    infos.map(({ parentTag: tag, chainDepth: depth }) => [tag, depth]),
    [
      ["python", 1],
      ["python", 1],
      [undefined, 0],
    ],
  );
  await forkd.call("killAll", {});
  await rejectsWith(forkd.snapshots.remove("python"), "snapshot_in_use", /diff, live would be orphaned/);
  await forkd.snapshots.remove("python", { force: true });
  await forkd.gc();
  await rejectsWith(forkd.fork("live"), "snapshot_corrupt", /"live".*"python" is missing/);
  const survivor = await forkd.create("full");
  assert.deepEqual((await survivor.eval(digest)).resultJson, expected);
});

function diskLayers(info: { manifest: Record<string, unknown> }): number {
  return (info.manifest["files"] as { disks: unknown[] }).disks.length;
}

test("a branch adds a disk layer only after writes, and many layers are merged without loss", async () => {
  await using source = await daemon.forkd.create("tiny");
  const layersOf = async (tag: string) => diskLayers(await daemon.forkd.snapshots.info(tag));
  await sh(source, "sync");
  const quiet: number[] = [];
  for (let index = 0; index < 3; index++) {
    const { tag } = await source.branch({ tag: `quiet-${index}` });
    quiet.push(await layersOf(tag));
  }
  const [first = 0] = quiet;
  assert.ok((quiet[2] ?? 0) - first <= 1, `layers without writes: ${quiet.join()}`);
  const sums: string[] = [];
  const layers: number[] = [];
  for (let index = 0; index < 20; index++) {
    sums.push(
      await sh(source, `head -c 40000 /dev/urandom > /root/f${index}; sync; sha256sum /root/f${index}`),
    );
    const { tag } = await source.branch({ tag: `busy-${index}` });
    layers.push(await layersOf(tag));
  }
  assert.equal(layers[1], (layers[0] ?? 0) + 1, layers.join());
  assert.ok(Math.max(...layers) <= 18, `never collapsed: ${layers.join()}`);
  assert.ok(
    layers.some((count, at) => count < (layers[at - 1] ?? 0)),
    `never collapsed: ${layers.join()}`,
  );
  const child = await daemon.forkd.create("busy-19");
  const early = await daemon.forkd.create("busy-9");
  const drop = "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum";
  const names = (count: number) => Array.from({ length: count }, (_, index) => `/root/f${index}`).join(" ");
  for (const sandbox of [source, child])
    assert.equal(await sh(sandbox, `${drop} ${names(20)}`), sums.join("\n"));
  assert.equal(await sh(early, `${drop} ${names(10)}`), sums.slice(0, 10).join("\n"));
  await rejectsWith(early.files.read("/root/f10"), "file_not_found");
  await Promise.all([child.kill(), early.kill()]);
});
