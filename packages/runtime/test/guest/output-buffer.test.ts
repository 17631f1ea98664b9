import assert from "node:assert/strict";
import { test } from "node:test";
import { GuestBytes } from "../../src/guest/guest-bytes.ts";
import { OutputBuffer } from "../../src/guest/output-buffer.ts";

test("OutputBuffer keeps what fits and says that something was dropped", () => {
  const room = new GuestBytes({ sandbox: 100, caller: 100, total: 100 });
  using held = room.open("sb-a", "alice");
  const buffer = new OutputBuffer(5, held);
  buffer.push(Buffer.from("abc"));
  assert.deepEqual([buffer.text(), buffer.isCut], ["abc", false]);
  buffer.push(Buffer.from("defg"));
  buffer.push(Buffer.from("h"));
  assert.deepEqual([buffer.text(), buffer.isCut, room.total], ["abcde", true, 10]);
});

test("all buffers together keep to the room there is, and give it back", () => {
  const room = new GuestBytes({ sandbox: 12, caller: 12, total: 12 });
  {
    using oneHeld = room.open("sb-a", "alice");
    using otherHeld = room.open("sb-b", "bob");
    const one = new OutputBuffer(100, oneHeld);
    const other = new OutputBuffer(100, otherHeld);
    one.push(Buffer.from("1234"));
    other.push(Buffer.from("5678"));
    assert.deepEqual([one.isCut, other.text(), other.isCut, room.total], [false, "56", true, 12]);
    // Room that comes later does not make a hole in what is kept.
    oneHeld[Symbol.dispose]();
    other.push(Buffer.from("9"));
    assert.equal(other.text(), "56");
  }
  assert.equal(room.total, 0);
});

test("output of one sandbox or one caller leaves room for others", () => {
  const room = new GuestBytes({ sandbox: 8, caller: 12, total: 20 });
  using first = room.open("sb-a", "alice");
  using second = room.open("sb-b", "alice");
  using third = room.open("sb-c", "bob");
  const texts = [first, second, third].map((held) => {
    const buffer = new OutputBuffer(100, held);
    buffer.push(Buffer.from("123456"));
    return buffer.text();
  });
  assert.deepEqual(texts, ["1234", "12", "1234"]);
});
