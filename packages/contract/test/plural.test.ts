import assert from "node:assert/strict";
import { test } from "node:test";
import { plural } from "../src/wire/plural.ts";

test("plural() counts with the singular for one and the plural otherwise", () => {
  assert.equal(plural(1, "sandbox"), "1 sandbox");
  assert.equal(plural(0, "sandbox"), "0 sandboxes");
  assert.equal(plural(2, "branch"), "2 branches");
  assert.equal(plural(3, "directory"), "3 directories");
  assert.equal(plural(2, "key"), "2 keys");
  assert.equal(plural(5, "child", "children"), "5 children");
});
