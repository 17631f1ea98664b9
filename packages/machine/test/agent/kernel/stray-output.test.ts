import assert from "node:assert/strict";
import { test } from "node:test";
import { StrayOutput } from "../../../src/agent/kernel/stray-output.ts";

test("StrayOutput keeps the order of the streams and gives its content once", () => {
  const stray = new StrayOutput();
  stray.push(1, Buffer.from("a"));
  stray.push(1, Buffer.from("b"));
  stray.push(2, Buffer.from("c"));
  const { pieces, lostBytes } = stray.take();
  assert.deepEqual(
    pieces.map(({ stream, bytes }) => [stream, bytes.toString()]),
    [
      [1, "ab"],
      [2, "c"],
    ],
  );
  assert.equal(lostBytes, 0);
  assert.deepEqual(stray.take(), { pieces: [], lostBytes: 0 });
});

test("StrayOutput keeps the last bytes, counts the others and bounds the number of pieces", () => {
  const stray = new StrayOutput();
  stray.push(1, Buffer.alloc(1000, "a"));
  stray.push(2, Buffer.alloc(64 * 1024 - 1, "b"));
  const first = stray.take();
  assert.deepEqual(
    first.pieces.map(({ bytes }) => bytes.length),
    [1, 64 * 1024 - 1],
  );
  assert.equal(first.lostBytes, 999);
  for (let nth = 0; nth < 1000; nth++) stray.push(nth % 2 === 0 ? 1 : 2, Buffer.from("x"));
  const second = stray.take();
  assert.deepEqual([second.pieces.length, second.lostBytes], [256, 744]);
});
