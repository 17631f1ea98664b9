import assert from "node:assert/strict";
import { test } from "node:test";
import { isForkTag } from "../src/control/fork-snapshots.ts";
import { snapshotTag } from "../src/templates/names.ts";

test("only tags of forks are taken for those that may be removed unasked", () => {
  assert.ok(isForkTag("e2b-fork-0123456789abcdef"));
  for (const tag of ["e2b-fork-mine", "e2b-fork-0123456789abcdef0", snapshotTag("e2b-fork", "01234567")])
    assert.ok(!isForkTag(tag), tag);
});
