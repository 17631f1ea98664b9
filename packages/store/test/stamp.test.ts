import assert from "node:assert/strict";
import { test } from "node:test";
import { VerifiedFiles } from "../src/stamp.ts";

const stamp = (inode: number, size = 1) => `1:${inode}:${size}:5`;

test("VerifiedFiles drops the least recently used files and keeps the others", () => {
  const verified = new VerifiedFiles({ maxFiles: 2 });
  verified.add(stamp(1), "a");
  verified.add(stamp(2), "b");
  assert.equal(verified.has(stamp(1), "a"), true);
  verified.add(stamp(3), "c");
  assert.deepEqual(
    [verified.has(stamp(1), "a"), verified.has(stamp(2), "b"), verified.has(stamp(3), "c")],
    [true, false, true],
  );
});

test("VerifiedFiles treats a file with another stamp or digest as another file", () => {
  const verified = new VerifiedFiles();
  verified.add(stamp(1), "a");
  assert.equal(verified.has(stamp(1, 2), "a"), false);
  assert.equal(verified.has(stamp(1), "b"), false);
  verified.delete(stamp(1));
  assert.equal(verified.has(stamp(1), "a"), false);
});
