import assert from "node:assert/strict";
import { test } from "node:test";
import { OutputBuffer, OutputRoom } from "../../src/guest/output-buffer.ts";

test("OutputBuffer keeps what fits and says that something was dropped", () => {
  const room = new OutputRoom(100);
  using buffer = new OutputBuffer(5, room);
  buffer.push(Buffer.from("abc"));
  assert.deepEqual([buffer.text(), buffer.isCut], ["abc", false]);
  buffer.push(Buffer.from("defg"));
  buffer.push(Buffer.from("h"));
  assert.deepEqual([buffer.text(), buffer.isCut, room.left], ["abcde", true, 95]);
});

test("all buffers together keep to the room there is, and give it back", () => {
  const room = new OutputRoom(6);
  {
    using one = new OutputBuffer(100, room);
    using other = new OutputBuffer(100, room);
    one.push(Buffer.from("1234"));
    other.push(Buffer.from("5678"));
    assert.deepEqual([one.isCut, other.text(), other.isCut, room.left], [false, "56", true, 0]);
    // Room that comes later does not make a hole in what is kept.
    one[Symbol.dispose]();
    other.push(Buffer.from("9"));
    assert.equal(other.text(), "56");
  }
  assert.equal(room.left, 6);
});
