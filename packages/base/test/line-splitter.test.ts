import assert from "node:assert/strict";
import { test } from "node:test";
import { LineSplitter } from "../src/line-splitter.ts";

test("LineSplitter gives the lines that end in a chunk and holds the rest", () => {
  const lines = new LineSplitter({ maxLength: 100 });
  assert.deepEqual(lines.push("on"), []);
  assert.deepEqual(lines.push("e\ntwo\n\nth"), ["one", "two", ""]);
  assert.deepEqual(lines.push("ree\n"), ["three"]);
  assert.equal(lines.takeRest(), "");
});

test("LineSplitter takes other line ends, and a run of them as one", () => {
  const lines = new LineSplitter({ maxLength: 100, ends: /[\r\n]+/ });
  assert.deepEqual(lines.push("a\r\nb\r50%\r"), ["a", "b", "50%"]);
  assert.deepEqual(lines.push("c"), []);
  assert.equal(lines.takeRest(), "c");
  assert.equal(lines.takeRest(), "");
});

test("LineSplitter reports an unfinished line that is too long", () => {
  const lines = new LineSplitter({ maxLength: 3 });
  assert.deepEqual(lines.push("longer\nabc"), ["longer"]);
  assert.equal(lines.isTooLong, false);
  lines.push("d");
  assert.equal(lines.isTooLong, true);
});
