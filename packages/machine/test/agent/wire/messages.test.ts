import assert from "node:assert/strict";
import { test } from "node:test";
import { errnoName, fileRefusal, ProtocolError, refusal } from "../../../src/agent/errors.ts";
import { decodeFields, encodeField, FrameParser } from "../../../src/agent/wire/frames.ts";
import * as replies from "../../../src/agent/wire/replies.ts";
import * as requests from "../../../src/agent/wire/requests.ts";
import { Random } from "../support/random.ts";
import { u32, u64, u8 } from "../support/fake-guest.ts";

function only(bytes: Buffer): { type: number; id: number; payload: Buffer } {
  const frames = [...new FrameParser().push(bytes)];
  assert.equal(frames.length, 1);
  return frames[0]!;
}

test("encodeStart() encodes every member", () => {
  const frame = only(
    requests.encodeStart(
      77,
      {
        kind: "write",
        argv: ["a", "", "b c"],
        env: { X: "1", Y: "" },
        cwd: "/w",
        user: "u:g",
        timeoutMs: 1500.2,
        stdin: true,
        pty: { rows: 2, cols: 3 },
        control: true,
        recursive: true,
        append: true,
        detached: true,
        follow: true,
        exclusive: true,
        keepBytes: 9,
        path: "/p",
        secondPath: "/q",
        mode: 0o640,
        offset: 2 ** 40,
        limit: 5,
        port: 8080,
        label: "l",
      },
      4096,
    ),
  );
  assert.deepEqual([frame.type, frame.id], [0x10, 77]);
  const hex = Object.fromEntries(
    [...decodeFields(frame.payload)].map(([key, values]) => [
      key,
      values.map((value) => value.toString("hex")),
    ]),
  );
  const text = (...values: string[]): string[] => values.map((value) => Buffer.from(value).toString("hex"));
  assert.deepEqual(hex, {
    1: ["02"],
    2: text("a", "", "b c"),
    3: text("X=1", "Y="),
    4: text("/w"),
    5: text("u:g"),
    6: ["dd050000"],
    7: ["ff000000"],
    8: ["02000300"],
    9: ["00100000"],
    10: ["09000000"],
    11: text("/p"),
    12: text("/q"),
    13: ["a0010000"],
    14: ["0000000000010000"],
    15: ["0500000000000000"],
    16: ["901f"],
    17: text("l"),
  });
});

test("fixed layouts have the bytes of the specification", () => {
  const hex = (bytes: Buffer): string => only(bytes).payload.toString("hex");
  assert.equal(hex(requests.encodeInput(1, 3, Buffer.from("hi"))), "03686901");
  assert.equal(hex(requests.encodeInputEof(1, 0)), "00");
  assert.equal(hex(requests.encodeCredit(1, 2, 65536)), "0200000100");
  assert.equal(hex(requests.encodeSignal(1, 15, "leader")), "0f01");
  assert.equal(hex(requests.encodeResize(1, 24, 80)), "18005000");
  assert.equal(
    hex(requests.encodeAttach(1, [1, 2, 3], [4, 5, 6])),
    "010000000000000004000000" + "020000000000000005000000" + "030000000000000006000000",
  );
});

test("encodeAfterFork() reads the clock when it encodes the frame", () => {
  let calls = 0;
  const realtimeNs = (): bigint => BigInt(++calls);
  const frame = only(
    requests.encodeAfterFork(4, { entropy: Buffer.alloc(32, 1), realtimeNs, hostname: "h" }),
  );
  const fields = decodeFields(frame.payload);
  assert.equal(calls, 1);
  assert.equal(fields.get(2)?.[0]?.readBigUInt64LE(), 1n);
  assert.equal(fields.get(3)?.[0]?.toString(), "h");
  assert.equal(fields.has(4), false);
});

test("decoders return the members of replies", () => {
  assert.deepEqual(replies.decodeExit(Buffer.concat([Buffer.from([1, 9, 1, 0]), u64(5), u64(6), u64(7)])), {
    signal: 9,
    timedOut: true,
    userUs: 5,
    systemUs: 6,
    peakRssKib: 7,
  });
  const listing = Buffer.concat([
    encodeField(1, u32(3)),
    encodeField(2, u32(4)),
    encodeField(3, u8(1)),
    encodeField(5, Buffer.from("sh")),
    encodeField(6, u8(200)),
    encodeField(7, Buffer.concat([u64(1), u64(2), u64(3)])),
    encodeField(8, u8(5)),
    encodeField(9, u8(0)),
  ]);
  assert.deepEqual(replies.decodeListing(listing), {
    id: 3,
    pid: 4,
    finished: true,
    label: "",
    command: "sh",
    kind: undefined,
    offsets: [1, 2, 3],
    code: 5,
    flags: 0,
  });
  assert.deepEqual(replies.decodeOutputEof(Buffer.concat([u8(2), u64(9)])), { stream: 2, offset: 9 });
});

for (const [what, run] of [
  ["OUTPUT without bytes", () => replies.decodeOutput(Buffer.concat([u8(1), u64(0)]))],
  ["OUTPUT of stream 0", () => replies.decodeOutput(Buffer.concat([u8(0), u64(0), u8(1)]))],
  [
    "OUTPUT at an offset beyond 2^53",
    () => replies.decodeOutput(Buffer.concat([u8(1), u64(1n << 60n), u8(1)])),
  ],
  ["OUTPUT_EOF with a byte left over", () => replies.decodeOutputEof(Buffer.alloc(10, 1))],
  ["INPUT_CREDIT of stream 1", () => replies.decodeInputCredit(Buffer.from([1, 0, 0, 0, 0]))],
  ["EXIT of kind 2", () => replies.decodeExit(Buffer.concat([u8(2), Buffer.alloc(27)]))],
  ["a truncated EXIT", () => replies.decodeExit(Buffer.alloc(27))],
  ["ERROR without errno", () => replies.decodeError(encodeField(2, Buffer.from("x")))],
  ["FORKED without what is missing", () => replies.decodeForked(encodeField(1, u32(1)))],
  [
    "FORKED with a short count",
    () => replies.decodeForked(Buffer.concat([encodeField(1, u8(1)), encodeField(2, u8(0))])),
  ],
  ["STARTED with a short pid", () => replies.decodeStarted(encodeField(1, u8(1)))],
  ["LISTING without offsets", () => replies.decodeListing(encodeField(1, u32(1)))],
  ["HELLO_OK without uptime", () => replies.decodeHelloOk(encodeField(1, Buffer.alloc(16)))],
] as const) {
  test(`decoders refuse ${what}`, () => assert.throws(run, ProtocolError));
}

test("decoders return or throw ProtocolError for random bytes", () => {
  const random = new Random(5);
  const decoders = Object.entries(replies).flatMap(([name, value]) =>
    typeof value === "function" ? [[name, value as (payload: Buffer) => unknown] as const] : [],
  );
  assert.ok(decoders.length >= 8);
  let refused = 0;
  for (let round = 0; round < 5000; round++) {
    const payload = random.bytes(random.below(64));
    if (random.below(2) === 0 && payload.length > 5) {
      payload[0] = 1 + random.below(10);
      payload.writeUInt32LE(random.below(20), 1);
    }
    for (const [name, decode] of decoders) {
      try {
        decode(payload);
      } catch (error) {
        assert.ok(error instanceof ProtocolError, `${name} of ${payload.toString("hex")}: ${String(error)}`);
        refused++;
      }
    }
  }
  assert.ok(refused > 0);
});

test("refusal() and fileRefusal() map errnos to codes", () => {
  assert.equal(errnoName(2), "ENOENT");
  assert.equal(errnoName(0), "errno 0");
  assert.equal(errnoName(4_000_000_000), "errno 4000000000");
  assert.equal(refusal("start", 11, "").code, "capacity_exhausted");
  assert.equal(refusal("start", 2, "").code, "guest_refused");
  assert.equal(fileRefusal("read", 2, "").code, "file_not_found");
  assert.equal(fileRefusal("write", 17, "").code, "already_exists");
  assert.deepEqual(
    [fileRefusal("write", 28, "x").code, fileRefusal("write", 28, "x").details],
    ["disk_full", { errno: "ENOSPC", text: "x", where: "guest" }],
  );
  assert.equal(fileRefusal("write", 13, "").details["errno"], "EACCES");
  assert.match(JSON.stringify(fileRefusal("write", 28, "x").remedy), /Delete files in the sandbox/);
});

test("refusal() says the reason once, with one kind of quotes", () => {
  const message = (action: string, text: string) => refusal(action, 22, text).message;
  assert.equal(
    message('read "/etc"', "cannot read '/etc': Is a directory"),
    'Cannot read "/etc": Is a directory',
  );
  assert.equal(
    message('remove "/a"', "cannot remove '/a/b': Permission denied"),
    'Cannot remove "/a": "/a/b": Permission denied',
  );
  assert.equal(
    message('start "nosuch"', "exec 'nosuch': No such file or directory"),
    'Cannot start "nosuch": No such file or directory',
  );
  assert.equal(
    message('start "id"', "user 'bob': Invalid argument"),
    'Cannot start "id": the guest has no user "bob"',
  );
  assert.equal(
    message('start "id"', "user 'bob:x': Invalid argument"),
    'Cannot start "id": the guest has no user or group "bob:x"',
  );
  assert.equal(
    message('start "ls"', "cwd '/nope': No such file or directory"),
    'Cannot start "ls": its working directory "/nope": No such file or directory',
  );
  assert.equal(message("set the clock", "CLOCK: no"), "Cannot set the clock: CLOCK: no");
});
