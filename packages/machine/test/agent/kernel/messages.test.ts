import assert from "node:assert/strict";
import { test } from "node:test";
import { JsonText } from "@forkd/base";
import {
  encodeDropContext,
  encodeEval,
  encodeKernelAfterFork,
  KernelMessageParser,
  maxMessageBytes,
  type KernelMessage,
} from "../../../src/agent/kernel/messages.ts";
import { decodeContexts } from "../../../src/agent/kernel/contexts.ts";
import { KernelGarbage } from "../../../src/agent/kernel/garbage.ts";
import { u32, u8 } from "../support/fake-guest.ts";
import { Random } from "../support/random.ts";

function message(type: string, ...parts: Buffer[]): Buffer {
  const payload = Buffer.concat(parts);
  return Buffer.concat([Buffer.from(type), u32(payload.length), payload]);
}

function value(id: number, status: number, text: string, json: string): Buffer {
  const parts = [text, json].flatMap((part) => [u32(Buffer.byteLength(part)), Buffer.from(part)]);
  return message("V", u32(id), u8(status), ...parts);
}

function parse(...pieces: Buffer[]): KernelMessage[] {
  const parser = new KernelMessageParser();
  return pieces.flatMap((piece) => [...parser.push(piece)]);
}

test("messages to the kernel have the bytes of the specification", () => {
  assert.equal(encodeEval(1, "ab", "x").toString("hex"), "4509000000010000000200616278");
  assert.equal(
    encodeKernelAfterFork(2, Buffer.from([7]), { A: "b" }).toString("hex"),
    "520b000000020000000100" + "07413d6200",
  );
  assert.equal(encodeDropContext(3, "c").toString("hex"), "440700000003000000010063");
  assert.throws(() => encodeEval(1, "c", "x".repeat(maxMessageBytes)), RangeError);
  assert.throws(() => encodeEval(1, "c".repeat(65_536), "x"), RangeError);
});

test("KernelMessageParser accepts any split of the stream", () => {
  const random = new Random(6);
  for (let round = 0; round < 200; round++) {
    const wanted: KernelMessage[] = [];
    const encoded: Buffer[] = [];
    for (let left = 1 + random.below(5); left > 0; left--) {
      const id = random.below(2 ** 32);
      const text = random.text(40);
      switch (random.below(4)) {
        case 0:
          wanted.push({ type: "Y", text });
          encoded.push(message("Y", Buffer.from(text)));
          break;
        case 1:
          wanted.push({
            type: "V",
            id,
            value: { status: "value", text, json: new JsonText(JSON.stringify({ text })) },
          });
          encoded.push(value(id, 0, text, JSON.stringify({ text })));
          break;
        case 2:
          wanted.push({ type: "A", id, bytes: Buffer.from(text) });
          encoded.push(message("A", u32(id), Buffer.from(text)));
          break;
        default:
          wanted.push({ type: "Z", id, text });
          encoded.push(message("Z", u32(id), Buffer.from(text)));
      }
    }
    const stream = Buffer.concat(encoded);
    const pieces: Buffer[] = [];
    for (let at = 0; at < stream.length;) {
      const size = 1 + random.below(30);
      pieces.push(stream.subarray(at, at + size));
      at += size;
    }
    assert.deepEqual(parse(...pieces), wanted);
  }
});

for (const [what, bytes] of [
  ["an unknown type", message("?", u32(1))],
  ["a length over the limit", Buffer.concat([Buffer.from("V"), u32(maxMessageBytes + 1)])],
  ["an answer without an id", message("A", u8(1))],
  ["a value of unknown status", value(1, 4, "", "")],
  ["a value without status", message("V", u32(1))],
  ["a value with truncated text", message("V", u32(1), u8(0), u32(5), Buffer.from("abc"))],
  ["a value with bytes left over", message("V", u32(1), u8(1), u32(0), u32(0), u8(0))],
  ["a value with invalid JSON", value(1, 0, "", "{")],
] as const) {
  test(`KernelMessageParser refuses ${what}`, () => assert.throws(() => parse(bytes), KernelGarbage));
}

test("pendingBytes counts the received part of an incomplete message", () => {
  const parser = new KernelMessageParser();
  const cut = Buffer.concat([Buffer.from("A"), u32(maxMessageBytes), Buffer.alloc(10)]);
  assert.deepEqual([...parser.push(cut)], []);
  assert.equal(parser.pendingBytes, 15);
});

test("cutAnswer has the id and missing bytes once nine bytes have arrived", () => {
  const parser = new KernelMessageParser();
  const whole = message("A", u32(77), Buffer.alloc(10));
  for (let at = 0; at < whole.length; at++) {
    const cut = parser.cutAnswer;
    assert.deepEqual(cut, at < 9 ? undefined : { id: 77, missingBytes: whole.length - at, isDisplay: false });
    parser.push(whole.subarray(at, at + 1)).next();
  }
  assert.equal(parser.cutAnswer, undefined);
  assert.deepEqual([...parser.push(message("Y", Buffer.alloc(20)).subarray(0, 15))], []);
  assert.equal(parser.cutAnswer, undefined, "ready is not an answer");
});

test("KernelMessageParser yields messages or throws KernelGarbage for random bytes", () => {
  const random = new Random(7);
  const types = Buffer.from("YVAZ?");
  let refused = 0;
  for (let round = 0; round < 5000; round++) {
    const bytes = random.bytes(5 + random.below(60));
    bytes[0] = types[random.below(types.length)]!;
    if (random.below(4) > 0) bytes.writeUInt32LE(random.below(bytes.length), 1);
    try {
      parse(bytes);
    } catch (error) {
      assert.ok(error instanceof KernelGarbage, `${bytes.toString("hex")}: ${String(error)}`);
      refused++;
    }
  }
  assert.ok(refused > 0 && refused < 5000);
});

test("decodeContexts() requires a NUL after each text, and a directory from protocol 3 on", () => {
  assert.deepEqual(decodeContexts(Buffer.from("a\0bc\0"), 2), [{ name: "a" }, { name: "bc" }]);
  assert.deepEqual(decodeContexts(Buffer.from("a\0/tmp\0"), 3), [{ name: "a", cwd: "/tmp" }]);
  assert.deepEqual(decodeContexts(Buffer.alloc(0), 3), []);
  assert.throws(() => decodeContexts(Buffer.from("a"), 2), KernelGarbage);
  assert.throws(() => decodeContexts(Buffer.from("a\0"), 3), KernelGarbage);
  assert.throws(() => decodeContexts(Buffer.from(`a\0${"x".repeat(5000)}\0`), 3), KernelGarbage);
});

test("a value says what its kernel has cut", () => {
  const decoded = (bytes: Buffer) => {
    const [first] = parse(bytes);
    assert.equal(first?.type, "V");
    return first.type === "V" ? first.value : undefined;
  };
  const cut = (status: number, whole: bigint) => {
    const end = Buffer.alloc(8);
    end.writeBigUInt64LE(whole);
    return message("V", u32(1), u8(status), u32(2), Buffer.from("ab"), u32(0), end);
  };
  assert.deepEqual(decoded(cut(0x10, 9n)), { status: "value", text: "ab", wholeTextBytes: 9 });
  assert.deepEqual(decoded(cut(0x30, 9n)), {
    status: "value",
    text: "ab",
    wholeTextBytes: 9,
    isJsonCut: true,
  });
  // A length that cannot be right is not passed on; the fact is.
  assert.equal(decoded(cut(0x10, 1n))?.wholeTextBytes, 0);
  assert.equal(decoded(cut(0x10, 2n ** 63n))?.wholeTextBytes, 0);
  assert.deepEqual(decoded(value(1, 0x20, "x", "")), { status: "value", text: "x", isJsonCut: true });
  assert.equal(decoded(value(1, 0, "x", "[".repeat(1001) + "]".repeat(1001)))?.isJsonCut, true);
  const error = decoded(value(1, 0x22, "x", '{"name":"E","value":"v"}'));
  assert.deepEqual(
    [error?.status, error?.error, error?.isJsonCut],
    ["error", { name: "E", value: "v", frames: [] }, true],
  );
  // A kernel of an older snapshot has no flags.
  const long = `${"x".repeat((4 << 20) - 3)}…`;
  assert.equal(decoded(value(1, 0, long, ""))?.wholeTextBytes, 0);
  assert.equal(decoded(value(1, 0, "short…", ""))?.wholeTextBytes, undefined);
});
