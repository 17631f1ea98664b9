import assert from "node:assert/strict";
import { test } from "node:test";
import { VerifiedFiles } from "../src/stamp.ts";

const stamp = (inode: number, size = 1) => `1:${inode}:${size}:5`;

test("VerifiedFiles forgets the files that were used least recently, and keeps the others", () => {
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

test("VerifiedFiles takes a file for another when its stamp or digest is another", () => {
  const verified = new VerifiedFiles();
  verified.add(stamp(1), "a");
  assert.equal(verified.has(stamp(1, 2), "a"), false);
  assert.equal(verified.has(stamp(1), "b"), false);
  verified.delete(stamp(1));
  assert.equal(verified.has(stamp(1), "a"), false);
});
