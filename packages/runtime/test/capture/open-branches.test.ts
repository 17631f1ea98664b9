import assert from "node:assert/strict";
import { test } from "node:test";
import { OpenBranches } from "../../src/capture/open-branches.ts";
import { EventBus } from "../../src/observe/events.ts";

const facts = { sandbox: "sb-1", mode: "live", startedAt: 0 } as const;

function recorded(limit: number): { branches: OpenBranches; events: string[] } {
  const bus = new EventBus();
  const branches = new OpenBranches(limit, bus);
  const events: string[] = [];
  bus.onEvent = ({ type, tag = "", reason }) => {
    const isListed = branches.has(tag) ? "listed" : "gone";
    events.push([type, isListed, ...(reason === undefined ? [] : [reason])].join(", "));
  };
  return { branches, events };
}

test("OpenBranch reports that it is ready when it has left the list, once", () => {
  const { branches, events } = recorded(1);
  const branch = branches.open({ ...facts, tag: "a" });
  branch.writing();
  branch.published();
  branch[Symbol.dispose]();
  branch[Symbol.dispose]();
  assert.deepEqual(events, ["snapshot.writing, listed", "snapshot.ready, gone"]);
});

test("OpenBranch reports why it failed, and nothing if it never captured anything", () => {
  const { branches, events } = recorded(1);
  branches.open({ ...facts, tag: "a" })[Symbol.dispose]();
  assert.deepEqual(events, []);
  const branch = branches.open({ ...facts, tag: "b" });
  branch.writing();
  branch.failed("the disk is full");
  branch[Symbol.dispose]();
  assert.deepEqual(events, ["snapshot.writing, listed", "snapshot.failed, gone, the disk is full"]);
});

test("OpenBranches refuses a tag that is being written, and branches above the limit", () => {
  const { branches } = recorded(1);
  const branch = branches.open({ ...facts, tag: "a" });
  branch.parentTag = "py";
  assert.deepEqual([branches.over("py"), branches.over("a")], [["a"], []]);
  assert.throws(() => branches.refuse("a"), { code: "snapshot_writing" });
  assert.throws(() => branches.open({ ...facts, tag: "a" }), { code: "snapshot_writing" });
  assert.throws(() => branches.open({ ...facts, tag: "b" }), { code: "capacity_exhausted" });
  branch[Symbol.dispose]();
  branches.open({ ...facts, tag: "b" });
  // Disposing a branch again does not remove another one with its tag.
  const other = recorded(2);
  const first = other.branches.open({ ...facts, tag: "c" });
  first[Symbol.dispose]();
  other.branches.open({ ...facts, tag: "c" });
  first[Symbol.dispose]();
  assert.ok(other.branches.has("c"));
});

test("reserve() refuses a second writer of a tag, and leaves the snapshot of that tag usable", () => {
  const branches = new OpenBranches(8, new EventBus());
  const reserved = branches.reserve("py", "build");
  assert.throws(() => branches.reserve("py", "build"), {
    code: "snapshot_writing",
    message: /a build of it/,
  });
  assert.throws(() => branches.open({ tag: "py", sandbox: "sb-1", mode: "live", startedAt: 0 }), {
    code: "snapshot_writing",
  });
  branches.refuse("py");
  reserved[Symbol.dispose]();
  branches.reserve("py", "compaction")[Symbol.dispose]();
});
