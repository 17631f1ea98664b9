import assert from "node:assert/strict";
import { test } from "node:test";
import { LruMap } from "../src/lru-map.ts";

test("LruMap drops the least recently used entry when it is full", () => {
  const map = new LruMap<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  assert.equal(map.get("a"), 1);
  map.set("c", 3);
  assert.deepEqual([...map.keys()], ["a", "c"]);
  assert.equal(map.get("b"), undefined);
});

test("LruMap does not count peek() as a use", () => {
  const map = new LruMap<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  assert.equal(map.peek("a"), 1);
  map.set("c", 3);
  assert.deepEqual([...map.keys()], ["b", "c"]);
});

test("LruMap replaces and deletes entries", () => {
  const map = new LruMap<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  map.set("a", 3);
  assert.equal(map.size, 2);
  map.set("c", 4);
  assert.deepEqual([...map.keys()], ["a", "c"]);
  assert.equal(map.delete("a"), true);
  assert.equal(map.delete("a"), false);
  assert.equal(map.size, 1);
});
