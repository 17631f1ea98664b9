/** Checks the frames of the C agent's tests from the host's side. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ProtocolError } from "../../../src/agent/errors.ts";
import {
  decodeFields,
  encodeFrame,
  FrameParser,
  frameType,
  type Frame,
} from "../../../src/agent/wire/frames.ts";
import * as replies from "../../../src/agent/wire/replies.ts";
import * as requests from "../../../src/agent/wire/requests.ts";
import { goldenFrames } from "../support/real-agent.ts";

const golden = new Map(
  readFileSync(goldenFrames, "utf8")
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => line.split(": ") as [string, string]),
);

function frameOf(name: string): Frame {
  const hex = golden.get(name);
  assert.ok(hex, `${name} is not in the file`);
  const frames = [...new FrameParser().push(Buffer.from(hex, "hex"))];
  assert.equal(frames.length, 1);
  return frames[0]!;
}

const nonce = Buffer.from(Array.from({ length: 16 }, (_, index) => index));
const entropy = Buffer.from(Array.from({ length: 32 }, (_, index) => index));

const fixed: Readonly<Record<string, () => Buffer>> = {
  hello: () => requests.encodeHello(nonce),
  ping: () => encodeFrame(frameType.ping, 7),
  "input-stdin": () => requests.encodeInput(1, 0, Buffer.from("hello\n")),
  "input-control": () => requests.encodeInput(1, 3, Buffer.from([0, 0xf0, 0x4b, 0xff])),
  "input-empty": () => requests.encodeInput(1, 0, Buffer.alloc(0)),
  "input-eof": () => requests.encodeInputEof(1, 0),
  credit: () => requests.encodeCredit(1, 1, 65_536),
  "signal-group": () => requests.encodeSignal(1, 15, "group"),
  "signal-leader": () => requests.encodeSignal(1, 2, "leader"),
  resize: () => requests.encodeResize(2, 50, 132),
  attach: () => requests.encodeAttach(1, [0, 2 ** 40, 12], [65_536, 0, 4096]),
  detach: () => encodeFrame(frameType.detach, 1),
  forget: () => encodeFrame(frameType.forget, 1),
  list: () => encodeFrame(frameType.list, 99),
  "after-fork": () =>
    requests.encodeAfterFork(100, {
      entropy,
      realtimeNs: () => frameOf("after-fork").payload.readBigUInt64LE(5 + 32 + 5),
      hostname: "child-1",
      machineId: "0123456789abcdef".repeat(2),
      bootId: "11111111-2222-3333-4444-555555555555",
    }),
  "after-fork-required-only": () =>
    requests.encodeAfterFork(101, { entropy: Buffer.alloc(64), realtimeNs: 1n }),
  "after-fork-network-up": () =>
    requests.encodeAfterFork(106, { entropy, realtimeNs: 1n, network: "up", requireConnections: true }),
  "after-fork-network-down": () =>
    requests.encodeAfterFork(107, { entropy, realtimeNs: 1n, network: "down", skipConnections: true }),
  sync: () => encodeFrame(frameType.sync, 102),
  poweroff: () => encodeFrame(frameType.powerOff, 0),
  clock: () => requests.encodeClock(103, () => 1_767_225_600_000_000_001n),
  "network-up": () => requests.encodeNetwork(104, "up"),
  "network-down": () => requests.encodeNetwork(105, "down"),
  "largest-id": () => encodeFrame(frameType.ping, 0xffff_ffff),
};

for (const [name, encode] of Object.entries(fixed)) {
  test(`the encoder produces golden ${name}`, () => assert.equal(encode().toString("hex"), golden.get(name)));
}

const starts: Readonly<Record<string, readonly [requests.StartSpec, number]>> = {
  "start-command": [
    {
      argv: ["sh", "-c", 'echo "$A"'],
      env: { A: "b c", E: "" },
      cwd: "/tmp",
      user: "user:staff",
      timeoutMs: 1500,
      stdin: true,
      control: true,
      keepBytes: 131_072,
      label: "kernel:python",
    },
    65_536,
  ],
  "start-pty": [{ argv: ["bash"], stdin: true, pty: { rows: 24, cols: 80 } }, 1_048_576],
  "start-read": [{ kind: "read", path: "/etc/hosts", offset: 5, limit: 2 ** 33 }, 65_536],
  "start-write": [{ kind: "write", path: "/srv/näme", mode: 0o600, exclusive: true }, 0],
  "start-stat": [{ kind: "stat", path: "/a", follow: true }, 0],
  "start-mkdir": [{ kind: "mkdir", path: "/a/b", mode: 0o755, recursive: true }, 0],
  "start-move": [{ kind: "move", path: "/a", secondPath: "/b" }, 0],
  "start-remove": [{ kind: "remove", path: "/a", recursive: true }, 0],
  "start-chmod": [{ kind: "chmod", path: "/a", mode: 0o4755 }, 0],
  "start-connect": [{ kind: "connect", port: 8080, path: "localhost" }, 0],
  "start-list-depth": [{ kind: "list", path: "~/src", depth: 4 }, 0],
  "start-write-in-place": [{ kind: "write", path: "/srv/a", inPlace: true }, 0],
  "start-watch": [{ kind: "watch", path: "/srv", recursive: true, entries: true }, 0],
};

for (const [name, [spec, credit]] of Object.entries(starts)) {
  test(`the encoder produces the fields of golden ${name}`, () => {
    const wanted = frameOf(name);
    const [sent] = new FrameParser().push(requests.encodeStart(wanted.id, spec, credit));
    const fields = new Map(decodeFields(sent!.payload));
    // Flags and credit are always sent, even if they are zero.
    const given = decodeFields(wanted.payload);
    for (const key of [7, 9]) {
      if (given.has(key)) continue;
      assert.deepEqual(fields.get(key), [Buffer.alloc(4)]);
      fields.delete(key);
    }
    assert.deepEqual([...fields].sort(byKey), [...given].sort(byKey));
  });
}

function byKey([one]: readonly [number, unknown], [other]: readonly [number, unknown]): number {
  return one - other;
}

const read: Readonly<Record<string, readonly [(payload: Buffer) => unknown, unknown]>> = {
  "hello-ok": [replies.decodeHelloOk, { version: "1.0.0", uptimeMs: 2238, unfinished: 1 }],
  error: [replies.decodeError, { errno: 2, text: "exec 'nope': No such file or directory" }],
  "clock-ok": [replies.decodeClockOk, 1_767_225_599_500_000_000n],
  forked: [replies.decodeForked, { destroyed: 3, missing: { connections: false, device: false } }],
  "forked-missing": [replies.decodeForked, { destroyed: 0, missing: { connections: true, device: true } }],
  started: [replies.decodeStarted, 312],
  output: [replies.decodeOutput, { stream: 1, offset: 0, bytes: Buffer.from("hello\n") }],
  "output-far": [replies.decodeOutput, { stream: 3, offset: 2 ** 40 + 5, bytes: Buffer.from([0, 1, 2]) }],
  "output-eof": [replies.decodeOutputEof, { stream: 2, offset: 6 }],
  "input-credit": [replies.decodeInputCredit, { stream: 0, bytes: 16_384 }],
  "input-closed": [replies.decodeInputClosed, undefined],
  "exit-code": [
    replies.decodeExit,
    { code: 3, timedOut: false, userUs: 1500, systemUs: 2500, peakRssKib: 1612 },
  ],
  "exit-signal-timeout": [
    replies.decodeExit,
    { signal: 9, timedOut: true, userUs: 0, systemUs: 0, peakRssKib: 0 },
  ],
  "listing-running": [
    replies.decodeListing,
    {
      id: 1,
      pid: 312,
      finished: false,
      label: "kernel:python",
      command: "python3",
      kind: "command",
      offsets: [6, 0, 12],
      flags: 4,
    },
  ],
  "listing-finished": [
    replies.decodeListing,
    {
      id: 2,
      pid: 313,
      finished: true,
      label: "",
      command: "sh",
      kind: "command",
      offsets: [0, 0, 0],
      code: 7,
      flags: 0,
    },
  ],
};

for (const [name, [decode, value]] of Object.entries(read)) {
  test(`the decoder reads golden ${name}`, () => assert.deepEqual(decode(frameOf(name).payload), value));
}

test("FrameParser finds golden hello-ok", () => {
  const parser = new FrameParser(nonce);
  const hello = Buffer.from(golden.get("hello-ok") ?? "", "hex");
  // The scan must skip the two frames before it.
  assert.deepEqual([...parser.push(hello.subarray(1))], []);
  assert.equal([...parser.push(hello)].length, 1);
  assert.throws(() => [...parser.push(Buffer.alloc(64, 0xff))]);
});

const bad = [...golden.keys()].filter((name) => name.startsWith("bad-"));
for (const name of bad) {
  test(`the parser refuses golden ${name}`, () => {
    if (name.startsWith("bad-fields-"))
      assert.throws(() => decodeFields(frameOf(name).payload), ProtocolError);
    else assert.throws(() => frameOf(name), ProtocolError);
  });
}

test("every golden frame is used", () => {
  // The host cannot send a path that is not text or a field of another version; `ok` has nothing to decode.
  const parsedOnly = ["start-list", "start-unknown-field", "ok"];
  for (const name of parsedOnly) decodeFields(frameOf(name).payload);
  const used = [...Object.keys(fixed), ...Object.keys(starts), ...Object.keys(read), ...bad, ...parsedOnly];
  assert.deepEqual(used.sort(), [...golden.keys()].sort());
});
