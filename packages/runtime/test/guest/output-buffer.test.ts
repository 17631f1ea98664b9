import assert from "node:assert/strict";
import { test } from "node:test";
import { GuestBytes } from "../../src/guest/guest-bytes.ts";
import { OutputBuffer } from "../../src/guest/output-buffer.ts";

test("OutputBuffer keeps what fits and says that something was dropped", async () => {
  const room = new GuestBytes({ free: 0, sandbox: 100, caller: 100, total: 100 });
  using held = room.open("sb-a", "alice");
  const buffer = new OutputBuffer(5, held);
  buffer.push(Buffer.from("abc"));
  assert.deepEqual([await buffer.text(), buffer.isCut], ["abc", false]);
  buffer.push(Buffer.from("defg"));
  buffer.push(Buffer.from("h"));
  assert.deepEqual([await buffer.text(), buffer.isCut, room.total], ["abcde", true, 10]);
});

test("all buffers together keep to the room there is, and give it back", async () => {
  const room = new GuestBytes({ free: 0, sandbox: 12, caller: 12, total: 12 });
  {
    using oneHeld = room.open("sb-a", "alice");
    using otherHeld = room.open("sb-b", "bob");
    const one = new OutputBuffer(100_000, oneHeld);
    const other = new OutputBuffer(100_000, otherHeld);
    one.push(Buffer.from("1234"));
    other.push(Buffer.from("5678"));
    assert.deepEqual([one.isCut, other.isCut, room.total], [false, true, 12]);
    assert.equal(await other.text(), "56");
    // Room that comes later does not make a hole in what is kept.
    oneHeld[Symbol.dispose]();
    other.push(Buffer.from("9"));
    assert.equal(await other.text(), "56");
  }
  assert.equal(room.total, 0);
});

test("output of one sandbox or one caller leaves room for others", async () => {
  const room = new GuestBytes({ free: 0, sandbox: 8, caller: 12, total: 20 });
  using first = room.open("sb-a", "alice");
  using second = room.open("sb-b", "alice");
  using third = room.open("sb-c", "bob");
  const texts = [first, second, third].map((held) => {
    const buffer = new OutputBuffer(100_000, held);
    buffer.push(Buffer.from("123456"));
    return buffer.text();
  });
  assert.deepEqual(await Promise.all(texts), ["1234", "12", "1234"]);
});

test("short output is complete without any room", async () => {
  const room = new GuestBytes({ free: 8, sandbox: 0, caller: 0, total: 0 });
  using held = room.open("sb-a", "alice");
  const buffer = new OutputBuffer(100, held);
  buffer.push(Buffer.from("fine"));
  assert.deepEqual([await buffer.text(), buffer.isCut, room.total], ["fine", false, 0]);
  buffer.push(Buffer.from("x"));
  assert.deepEqual([await buffer.text(), buffer.isCut], ["fine", true]);
});

test("long output is decoded in several turns, and characters at the cuts stay whole", async () => {
  const room = new GuestBytes();
  using held = room.open("sb-a", "alice");
  const buffer = new OutputBuffer(4_000_000, held);
  const bytes = Buffer.concat([
    Buffer.from("a"),
    Buffer.from("€".repeat(1_000_000)),
    Buffer.from([0xff, 0xe2]),
  ]);
  buffer.push(bytes);
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  const text = await buffer.text();
  isDone = true;
  assert.ok(text === bytes.toString(), "the text differs");
  assert.ok(turns >= 10, `${turns} turns`);
});
