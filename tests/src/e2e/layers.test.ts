/** Chains of layers: building, lineage, compaction, removal, garbage collection. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { CommandError, type Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { rejectsWith, until } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"], env: { FORKD_COMPACT_DEPTH: "4" } });
});
after(() => daemon[Symbol.asyncDispose]());

/** Command that installs a Python module, as a package manager would. */
const install = (name: string) => [
  "sh",
  "-c",
  `d=$(python3 -c 'import site; print(site.getsitepackages()[0])'); mkdir -p $d && echo 'value = "${name}"' > $d/${name}.py && echo ${name} > /root/${name} && echo installed ${name}`,
];
const everything =
  "import first, second; [first.value, second.value, open('/root/first').read(), open('/root/second').read()]";
const expected = ["first", "second", "first\n", "second\n"];

async function seenIn(tag: string): Promise<unknown> {
  await using child = await daemon.forkd.create(tag);
  const { resultJson: seen, error } = await child.eval(everything);
  assert.equal(error, null);
  return seen;
}

test("a chain of layers keeps everything below it, can be compacted, and cannot lose its parent", async () => {
  const { snapshots } = daemon.forkd;
  let output = "";
  const first = await snapshots.derive({
    from: "python",
    tag: "first",
    command: install("first"),
    onOutput: ({ data }) => void (output += data),
  });
  assert.match(output, /installed first/);
  assert.deepEqual([first.parentTag, first.status], ["python", "ready"]);
  await snapshots.derive({ from: "first", tag: "second", command: install("second"), mode: "diff" });
  assert.deepEqual(await daemon.forkd.sandboxes.list().all(), []);
  assert.deepEqual(await seenIn("second"), expected);
  await using one = await daemon.forkd.create("first");
  assert.match((await one.eval("import second")).error ?? "", /ModuleNotFoundError/);
  await one.kill();

  const [base, below, top] = await Promise.all(
    ["python", "first", "second"].map((tag) => snapshots.info(tag)),
  );
  assert.deepEqual(
    [base, below, top].map((info) => [info?.chainDepth, info?.ancestors, info?.dependents]),
    [
      [0, [], ["first"]],
      [1, ["python"], ["second"]],
      [2, ["first", "python"], []],
    ],
  );
  assert.equal(top?.parentContentHash, below?.id);
  assert.ok((top?.layerBytes ?? 0) > 0 && (base?.layerBytes ?? 0) === 0);
  const tree = await daemon.forkd.tree();
  assert.deepEqual(
    tree.snapshots.filter(({ tag }) => tag !== "tiny").map(({ tag, parentTag: parent }) => [tag, parent]),
    [
      ["first", "python"],
      ["python", undefined],
      ["second", "first"],
    ],
  );

  // Children use the files of the chain. Their views are made again when a fork needs them.
  assert.deepEqual(readdirSync(join(daemon.dataDir, "cache/memory")), []);
  const views = join(daemon.dataDir, "cache/memory-views");
  const dry = await daemon.forkd.gc({ dryRun: true });
  assert.ok(dry.removed.some(({ kind, name }) => kind === "memory" && name === top?.id));
  assert.ok(readdirSync(views).some((name) => name.startsWith(top?.id ?? "none")));
  assert.ok((await daemon.forkd.gc()).freedBytes > 0);
  assert.deepEqual(readdirSync(views), []);
  assert.deepEqual(await seenIn("second"), expected);

  await snapshots.compact("second", "alone");
  const alone = await snapshots.info("alone", { verify: true });
  assert.deepEqual([alone.chainDepth, alone.parentTag, alone.branchedFrom], [0, undefined, "compact:second"]);
  await rejectsWith(snapshots.compact("second", "alone"), "snapshot_exists");
  await rejectsWith(snapshots.compact("second", "second"), "invalid_request");
  await rejectsWith(snapshots.remove("python"), "snapshot_in_use", /first would be orphaned/);
  await rejectsWith(snapshots.remove("first"), "snapshot_in_use", /second would be orphaned/);
  await using held = await daemon.forkd.create("second");
  await rejectsWith(snapshots.remove("python", { cascade: true }), "snapshot_in_use", /1 sandbox runs/);
  await held.kill();
  await snapshots.remove("python", { cascade: true });
  assert.deepEqual(
    (await snapshots.list().all()).map(({ tag }) => tag),
    ["alone", "tiny"],
  );
  assert.deepEqual(await seenIn("alone"), expected);
});

test("gc() keeps the view that a machine uses", async () => {
  await using source = await daemon.forkd.create("tiny");
  await sh(source, "echo here > /root/x");
  const { tag } = await source.branch({ tag: "mapped" });
  await using child = await daemon.forkd.create(tag);
  const { id } = await daemon.forkd.snapshots.info(tag);
  assert.ok((await daemon.forkd.gc()).removed.every(({ name }) => name !== id));
  const views = readdirSync(join(daemon.dataDir, "cache/memory-views"));
  assert.equal(views.filter((name) => name.startsWith(id)).length, 1);
  assert.equal(await sh(child, "cat /root/x"), "here");
});

test("a long chain is compacted in the background: it grows on, and every snapshot of it is as it was", async () => {
  const { snapshots } = daemon.forkd;
  await using source = await daemon.forkd.create("tiny");
  for (const round of [1, 2, 3, 4, 5]) {
    await sh(source, `echo ${round} >> /root/rounds`);
    await source.branch({ tag: `t${round}` });
    await source.rewind(`t${round}`);
  }
  const image = join(daemon.dataDir, "snapshots/t3/flat.json");
  await until("the fourth snapshot of the chain has its whole memory", () => existsSync(image));
  const rounds = async (sandbox: Sandbox) =>
    (await sh(sandbox, "cat /root/rounds")).trim().split("\n").join();
  assert.equal(await rounds(source), "1,2,3,4,5");
  const info = await snapshots.info("t5", { verify: true });
  assert.deepEqual([info.chainDepth, info.ancestors.at(-1), info.mode], [5, "tiny", "live"]);
  await source.rewind("t1");
  await daemon.forkd.gc();
  await using child = await daemon.forkd.create("t5");
  assert.equal(await rounds(child), "1,2,3,4,5");
  assert.equal(await rounds(source), "1");
  await source.kill();
  await child.rewind("t2");
  assert.equal(await rounds(child), "1,2");
});

test("derive() makes no layer when its command fails", async () => {
  const failing = daemon.forkd.snapshots.derive({
    from: "tiny",
    tag: "no",
    command: ["sh", "-c", "echo why >&2; exit 3"],
  });
  await assert.rejects(failing, (error) => error instanceof CommandError && error.result.exitCode === 3);
  await rejectsWith(
    daemon.forkd.snapshots.derive({ from: "nowhere", tag: "no", command: ["true"] }),
    "snapshot_not_found",
  );
  assert.ok((await daemon.forkd.snapshots.list().all()).every(({ tag }) => tag !== "no"));
  assert.deepEqual(await daemon.forkd.sandboxes.list().all(), []);
});
