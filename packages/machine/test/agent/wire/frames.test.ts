import assert from "node:assert/strict";
import { test } from "node:test";
import { ProtocolError } from "../../../src/agent/errors.ts";
import {
  decodeFields,
  encodeField,
  encodeFrame,
  FrameParser,
  frameType,
  headerBytes,
  maxPayloadBytes,
  type Frame,
} from "../../../src/agent/wire/frames.ts";
import { Random } from "../support/random.ts";

function pieces(bytes: Buffer, random: Random): Buffer[] {
  const result: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + random.below(random.below(4) === 0 ? 100_000 : 40);
    result.push(bytes.subarray(at, at + size));
    at += size;
  }
  return result;
}

function parseAll(parser: FrameParser, chunks: readonly Buffer[]): Frame[] {
  return chunks.flatMap((chunk) => [...parser.push(chunk)]);
}

test("FrameParser accepts any split of the stream", () => {
  const random = new Random(1);
  for (let round = 0; round < 200; round++) {
    const frames = Array.from({ length: 1 + random.below(8) }, () => ({
      type: random.below(256),
      id: random.below(2 ** 32),
      payload: random.bytes(random.below(10) === 0 ? random.below(3000) : random.below(30)),
    }));
    const stream = Buffer.concat(frames.map(({ type, id, payload }) => encodeFrame(type, id, payload)));
    const parsed = parseAll(new FrameParser(), pieces(stream, random));
    assert.deepEqual(
      parsed.map(({ type, id, payload }) => ({ type, id, payload: Buffer.from(payload) })),
      frames,
    );
  }
});

test("the largest payload fits and one more byte does not", () => {
  const largest = Buffer.alloc(maxPayloadBytes, 7);
  const [frame] = parseAll(new FrameParser(), [encodeFrame(1, 2, largest)]);
  assert.ok(frame?.payload.equals(largest));
  assert.throws(() => encodeFrame(1, 2, largest, Buffer.alloc(1)), RangeError);
  const claimed = encodeFrame(1, 2);
  claimed.writeUInt32LE(maxPayloadBytes + 1, 8);
  fixCheck(claimed);
  assert.throws(() => parseAll(new FrameParser(), [claimed]), /payload of 65537 bytes/);
});

function fixCheck(frame: Buffer): void {
  const words = [0, 4, 8].map((at) => frame.readUInt32LE(at));
  frame.writeUInt32LE(words.reduce((sum, word) => sum ^ word, 0x464b4431) >>> 0, 12);
}

for (const [what, at, message] of [
  ["magic", 0, /no frame/],
  ["magic", 1, /no frame/],
  ["version", 2, /frame version 0/],
  ["type", 3, /check/],
  ["id", 5, /check/],
  ["check", 15, /check/],
] as const) {
  for (const cut of [0, 9]) {
    test(`FrameParser refuses a wrong ${what} at byte ${at}, split at ${cut}`, () => {
      const frame = encodeFrame(0x82, 3);
      frame[at]! ^= 1;
      const chunks = [frame.subarray(0, cut), frame.subarray(cut)];
      assert.throws(() => parseAll(new FrameParser(), chunks), { name: "ProtocolError", message });
    });
  }
}

const nonce = Buffer.from("0123456789abcdef");
const helloOk = encodeFrame(frameType.helloOk, 0, encodeField(2, Buffer.from("v")), encodeField(1, nonce));

test("FrameParser skips all bytes before its own HELLO_OK", () => {
  const random = new Random(2);
  const foreign = encodeFrame(frameType.helloOk, 0, encodeField(1, Buffer.alloc(16)));
  const broken = encodeFrame(frameType.helloOk, 0, Buffer.from([1, 255, 255, 0, 0]));
  const endless = encodeFrame(frameType.helloOk, 0, Buffer.alloc(900)).subarray(0, headerBytes);
  const output = encodeFrame(frameType.output, 9, Buffer.alloc(5000, 0xf0));
  const old = [
    foreign,
    broken,
    endless,
    output.subarray(100),
    Buffer.from([0xf0, 0x4b, 1]),
    random.bytes(500),
    output,
  ];
  for (let round = 0; round < 300; round++) {
    const before = Array.from({ length: random.below(6) }, () => old[random.below(old.length)]!);
    const next = encodeFrame(frameType.ok, 5, random.bytes(random.below(100)));
    const stream = Buffer.concat([...before, helloOk, next, next]);
    const parser = new FrameParser(nonce);
    const frames = parseAll(parser, pieces(stream, random));
    assert.deepEqual(
      frames.map(({ type }) => type),
      [frameType.helloOk, frameType.ok, frameType.ok],
    );
  }
});

test("FrameParser yields no frame before its HELLO_OK, and all frames after it", () => {
  const parser = new FrameParser(nonce);
  const random = new Random(3);
  for (let round = 0; round < 200; round++) assert.deepEqual([...parser.push(random.bytes(4096))], []);
  const next = encodeFrame(frameType.ok, 5, Buffer.alloc(0));
  assert.deepEqual([...parser.push(next)], []);
  const frames = [...parser.push(Buffer.concat([helloOk, next]))];
  assert.deepEqual(
    frames.map(({ type }) => type),
    [frameType.helloOk, frameType.ok],
  );
});

test("FrameParser refuses garbage after HELLO_OK", () => {
  const parser = new FrameParser(nonce);
  assert.throws(() => parseAll(parser, [Buffer.concat([helloOk, Buffer.alloc(16)])]), ProtocolError);
});

test("decodeFields() returns encoded fields, repeated ones in order", () => {
  const random = new Random(4);
  for (let round = 0; round < 300; round++) {
    const wanted = new Map<number, Buffer[]>();
    const parts: Buffer[] = [];
    for (let left = random.below(10); left > 0; left--) {
      const key = 1 + random.below(4);
      const value = random.bytes(random.below(50));
      wanted.set(key, [...(wanted.get(key) ?? []), value]);
      parts.push(encodeField(key, value));
    }
    const decoded = decodeFields(Buffer.concat(parts));
    assert.deepEqual(
      new Map([...decoded].map(([key, list]) => [key, list.map((value) => Buffer.from(value))])),
      wanted,
    );
  }
});

test("decodeFields() refuses truncated fields and key 0", () => {
  const field = encodeField(3, Buffer.from("abc"));
  for (let length = 1; length < field.length; length++) {
    assert.throws(() => decodeFields(field.subarray(0, length)), ProtocolError, `${length} bytes`);
  }
  assert.throws(() => decodeFields(encodeField(0, Buffer.alloc(0))), /key 0/);
  assert.throws(() => decodeFields(Buffer.from([1, 255, 255, 255, 255])), /past the payload/);
});
