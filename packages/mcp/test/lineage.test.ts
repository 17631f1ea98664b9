import assert from "node:assert/strict";
import { test } from "node:test";
import { drawLineage } from "../src/resources/lineage.ts";
import { fileUri } from "../src/resources/uris.ts";

const at = { status: "ready" as const, created_at_unix: 0, physical_bytes: 0 };

test("drawLineage() indents what descends, and ends on cycles and missing parents", () => {
  const tree = {
    snapshots: [
      { tag: "base", ...at },
      { tag: "branch", parent_tag: "base", branched_from: "sb-1", ...at, status: "writing" as const },
      { tag: "orphan", parent_tag: "gone", ...at },
      { tag: "loop", parent_tag: "loop", ...at },
    ],
    sandboxes: [{ id: "sb-1", state: "running" as const, snapshot_tag: "base", created_at_unix: 0 }],
  };
  assert.equal(
    drawLineage(tree),
    "snapshot base\n  sandbox sb-1 (running)\n  snapshot branch (writing, branch of sb-1)\nsnapshot orphan\n",
  );
  assert.equal(drawLineage({ snapshots: [], sandboxes: [] }), "There are no snapshots.\n");
});

test("fileUri() escapes every character that an address cannot have", () => {
  assert.equal(fileUri("sb-1", "/a b/#?%/ü"), "forkd://sandboxes/sb-1/files/a%20b/%23%3F%25/%C3%BC");
});
