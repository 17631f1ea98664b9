import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tree } from "@forkd/contract";
import { lineageOf, renderTree, tagsOf } from "../../src/views/lineage.ts";
import { idA, idB } from "../fake-daemon.ts";

const nowMs = 1_000_000_000;
const created_at_unix = nowMs / 1000 - 60;

function snapshot(tag: string, parent_tag?: string, more = {}): Tree["snapshots"][number] {
  return {
    tag,
    status: "ready",
    created_at_unix,
    physical_bytes: 2048,
    ...(parent_tag && { parent_tag }),
    ...more,
  };
}

function sandbox(id: string, snapshot_tag: string, more = {}): Tree["sandboxes"][number] {
  return { id, state: "running", snapshot_tag, created_at_unix, ...more };
}

test("renderTree() draws snapshots and sandboxes below their parents", () => {
  const tree = {
    snapshots: [
      snapshot("py"),
      snapshot("step-2", "step-1", { status: "writing" }),
      snapshot("step-1", "py", { branched_from: idA }),
      snapshot("node"),
      snapshot("alt", "py"),
    ],
    sandboxes: [
      sandbox(idA, "py", { state: "paused", workspace: "dev" }),
      sandbox(idB, "step-1", { created_at_unix: created_at_unix - 60 }),
      sandbox("sb-dead", "py", { state: "dead" }),
    ],
  };
  assert.deepEqual(renderTree(tree, { nowMs }), [
    "node  ready, 60s ago, 2.0 KiB",
    "py  ready, 60s ago, 2.0 KiB",
    "├── alt  ready, 60s ago, 2.0 KiB",
    `├── step-1  ready, 60s ago, 2.0 KiB, branched from ${idA}`,
    "│   ├── step-2  writing, 60s ago, 2.0 KiB",
    `│   └── ${idB}  running, 2m ago`,
    `└── ${idA}  paused, 60s ago, workspace dev`,
  ]);
  assert.deepEqual(
    renderTree({ ...tree, sandboxes: [] }, { nowMs, ascii: true }).map((line) => line.split("  ready")[0]),
    ["node", "py", "|-- alt", "`-- step-1", "    `-- step-2  writing, 60s ago, 2.0 KiB"],
  );
});

test("renderTree() shows removed parents as missing", () => {
  const tree = {
    snapshots: [snapshot("layer", "gone"), snapshot("a")],
    sandboxes: [sandbox(idA, "gone"), sandbox(idB, "lost")],
  };
  assert.deepEqual(renderTree(tree, { nowMs }), [
    "gone  missing",
    "├── layer  ready, 60s ago, 2.0 KiB",
    `└── ${idA}  running, 60s ago`,
    "lost  missing",
    `└── ${idB}  running, 60s ago`,
    "a  ready, 60s ago, 2.0 KiB",
  ]);
});

test("renderTree() terminates for tags that name each other as parents, and draws all of them", () => {
  const tree = {
    snapshots: [snapshot("b", "a"), snapshot("a", "b"), snapshot("self", "self")],
    sandboxes: [],
  };
  assert.deepEqual(
    renderTree(tree, { nowMs, ascii: true }).map((line) => line.split("  ready")[0]),
    ["a", "`-- b", "self"],
  );
  assert.deepEqual(renderTree({ snapshots: [], sandboxes: [] }), []);
});

test("renderTree() replaces control characters", () => {
  const tree = { snapshots: [snapshot("a", undefined, { branched_from: "x\u001b[31m" })], sandboxes: [] };
  assert.deepEqual(renderTree(tree, { nowMs }), ["a  ready, 60s ago, 2.0 KiB, branched from x [31m"]);
});

const namesOf = (lines: readonly string[]) => lines.map((line) => line.split("  ready")[0]);

test("renderTree() draws the oldest first, and t2 before t10", () => {
  const snapshots = [
    snapshot("t10"),
    snapshot("t2"),
    snapshot("old", undefined, { created_at_unix: 1 }),
    snapshot("b", "t2", { created_at_unix: 3 }),
    snapshot("a", "t2", { created_at_unix: 4 }),
  ];
  const lines = renderTree({ snapshots, sandboxes: [] }, { nowMs, ascii: true });
  assert.deepEqual(namesOf(lines), ["old", "t2", "|-- b", "`-- a", "t10"]);
});

test("renderTree() does not indent straight chains that are too deep for the width", () => {
  const chain = Array.from({ length: 31 }, (_, at) =>
    snapshot(`t${at}`, at === 0 ? undefined : `t${at - 1}`),
  );
  const tree = {
    snapshots: [...chain, snapshot("x", "t30", { branched_from: idA }), snapshot("y", "t30")],
    sandboxes: [sandbox(idA, "x"), sandbox(idB, "y")],
  };
  const wide = renderTree(tree, { nowMs });
  assert.ok(wide.some((line) => line.length > 120));
  const fitted = renderTree(tree, { nowMs, width: 79 });
  assert.equal(fitted.length, wide.length);
  for (const line of fitted) assert.ok(line.length <= 79, line);
  assert.deepEqual(
    [fitted[0], fitted[1], ...fitted.slice(-5)],
    [
      "t0  ready, 60s ago, 2.0 KiB",
      "↓ t1  ready, 60s ago, 2.0 KiB",
      "↓ t30  ready, 60s ago, 2.0 KiB",
      "├── x  ready, 60s ago, 2.0 KiB, branched from sb-aa000000",
      "│   └── sb-aa000000  running, 60s ago",
      "└── y  ready, 60s ago, 2.0 KiB",
      "    └── sb-ab000000  running, 60s ago",
    ],
  );
  assert.equal(
    renderTree({ snapshots: [snapshot("a"), snapshot("b", "a")], sandboxes: [] }, { width: 79 }).length,
    2,
  );
});

test("lineageOf() keeps ancestors, descendants and their sandboxes", () => {
  const tree = {
    snapshots: [snapshot("py"), snapshot("a", "py"), snapshot("a1", "a"), snapshot("b", "py"), snapshot("c")],
    sandboxes: [sandbox(idA, "py"), sandbox(idB, "a1")],
  };
  const found = lineageOf(tree, "a");
  assert.deepEqual(found && tagsOf(found), ["a", "a1", "py"]);
  assert.deepEqual(
    found?.sandboxes.map(({ id }) => id),
    [idB],
  );
  assert.equal(lineageOf(tree, "none"), undefined);
  const loop = { snapshots: [snapshot("x", "y"), snapshot("y", "x")], sandboxes: [] };
  assert.equal(lineageOf(loop, "x")?.snapshots.length, 2);
});
