import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tree } from "@forkd/contract";
import { renderTree } from "../../src/views/lineage.ts";
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
    "a  ready, 60s ago, 2.0 KiB",
    "gone  missing",
    "├── layer  ready, 60s ago, 2.0 KiB",
    `└── ${idA}  running, 60s ago`,
    "lost  missing",
    `└── ${idB}  running, 60s ago`,
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
