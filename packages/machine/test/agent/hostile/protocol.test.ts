/** The worst effect of a hostile guest is that it loses its connection. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { FrameChannel } from "../../../src/agent/channel.ts";
import { AgentClient } from "../../../src/agent/client.ts";
import { ProtocolError } from "../../../src/agent/errors.ts";
import { encodeField, encodeFrame, FrameParser, frameType } from "../../../src/agent/wire/frames.ts";
import { FakeGuest, socketPair, u32, u64, u8 } from "../support/fake-guest.ts";

async function expectDropped(
  guest: FakeGuest,
  message: RegExp,
  ...pending: Promise<unknown>[]
): Promise<void> {
  const reason = await guest.dropped();
  assert.ok(reason instanceof ProtocolError, String(reason));
  assert.match(reason.message, message);
  for (const promise of pending) {
    await assert.rejects(
      promise,
      (error: AppError) => error.code === "agent_unreachable" && error.cause === reason,
    );
  }
}

type Attack = readonly [string, RegExp, (guest: FakeGuest, id: number) => void];
const windowBytes = 65_536;
const block = Buffer.alloc(32_768);

const attacks: readonly Attack[] = [
  ["garbage", /no frame/, (guest) => guest.socket.write(Buffer.alloc(64, 0xaa))],
  ["zeros", /no frame/, (guest) => guest.socket.write(Buffer.alloc(64))],
  ["an unknown frame type", /type 112/, (guest, id) => guest.send(0x70, id)],
  ["a second HELLO_OK", /unknown id 0/, (guest) => guest.send(frameType.helloOk, 0)],
  ["an answer to no request", /unknown id 5/, (guest) => guest.send(frameType.ok, 5)],
  ["output of an unknown process", /unknown id 6/, (guest) => guest.output(6, 1, 0, "x")],
  [
    "output beyond the credit",
    /beyond the credit of stream 1/,
    (guest, id) => [0, 1, 2].forEach((index) => guest.output(id, 1, index * block.length, block)),
  ],
  ["output at a wrong offset", /offset 9 of stream 2 where 0/, (guest, id) => guest.output(id, 2, 9, "x")],
  [
    "the same output twice",
    /offset 0 of stream 1 where 1/,
    (guest, id) => [0, 1].forEach(() => guest.output(id, 1, 0, "x")),
  ],
  ["output without bytes", /OUTPUT without bytes/, (guest, id) => guest.output(id, 1, 0, "")],
  ["output of stream 4", /output stream 4/, (guest, id) => guest.output(id, 4, 0, "x")],
  [
    "output after its end",
    /after the end of stream 1/,
    (guest, id) => {
      guest.send(frameType.outputEof, id, u8(1), u64(0));
      guest.output(id, 1, 0, "x");
    },
  ],
  [
    "STARTED twice",
    /type 144 for process/,
    (guest, id) => guest.send(frameType.started, id, encodeField(1, u32(1))),
  ],
  ["OK for a command", /type 130 for process/, (guest, id) => guest.send(frameType.ok, id)],
  [
    "an error for a running process",
    /error for the running/,
    (guest, id) => guest.send(frameType.error, id, encodeField(1, u32(5))),
  ],
  [
    "credit for input that was not sent",
    /INPUT_CREDIT of 1 bytes for 0/,
    (guest, id) => guest.send(frameType.inputCredit, id, u8(0), u32(1)),
  ],
  [
    "credit for no input",
    /INPUT_CREDIT of 0 bytes/,
    (guest, id) => guest.send(frameType.inputCredit, id, u8(0), u32(0)),
  ],
  [
    "LISTING for a process",
    /type 149 for a process/,
    (guest, id) => guest.send(frameType.listing, id, encodeField(1, u32(1))),
  ],
];

for (const [what, message, attack] of attacks) {
  test(`${what} drops the connection`, async () => {
    await using guest = await FakeGuest.ready();
    const process = guest.client.start({ argv: ["x"] }, { windowBytes });
    const id = await guest.acceptStart();
    await process.started;
    const ping = guest.client.ping();
    attack(guest, id);
    await expectDropped(guest, message, process.exit, ping);
  });
}

test("a length over the limit drops the connection before its payload arrives", async () => {
  await using guest = await FakeGuest.ready();
  const header = encodeFrame(frameType.output, 1);
  header.writeUInt32LE(65_537, 8);
  header.writeUInt32LE((header.readUInt32LE(12) ^ 65_537) >>> 0, 12);
  guest.socket.write(header);
  await expectDropped(guest, /payload of 65537 bytes/);
});

test("a second EXIT drops the connection, and the first one counts", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  const id = await guest.acceptStart();
  guest.exit(id, 4);
  assert.equal((await process.exit).code, 4);
  guest.exit(id, 5);
  await expectDropped(guest, /unknown id/);
  assert.equal((await process.exit).code, 4);
});

test("output and EXIT before STARTED drop the connection", async () => {
  for (const early of ["output", "exit"] as const) {
    await using guest = await FakeGuest.ready();
    const process = guest.client.start({ argv: ["x"] });
    const { id } = await guest.take(frameType.start);
    if (early === "output") guest.output(id, 1, 0, "x");
    else guest.exit(id);
    await expectDropped(guest, /before it started/, process.started);
  }
});

test("an endless list drops the connection", async () => {
  await using guest = await FakeGuest.ready();
  const list = guest.client.list();
  const { id } = await guest.take(frameType.list);
  const listing = encodeFrame(
    frameType.listing,
    id,
    encodeField(1, u32(1)),
    encodeField(2, u32(1)),
    encodeField(3, u8(0)),
    encodeField(6, u8(0)),
    encodeField(7, Buffer.alloc(24)),
  );
  guest.socket.write(Buffer.concat(Array.from({ length: 2049 }, () => listing)));
  await expectDropped(guest, /answer to "list processes"/, list);
});

test("a guest that never answers HELLO is unreachable after the timeout", async () => {
  await using guest = await FakeGuest.open({ helloTimeoutMs: 50 });
  const ping = guest.client.ping();
  await assert.rejects(guest.client.ready, {
    code: "agent_unreachable",
    message: /did not answer within 50 ms/,
  });
  await assert.rejects(ping, { code: "agent_unreachable" });
  assert.equal(guest.client.isClosed, true);
});

test("an abort closes the connection", async () => {
  const controller = new AbortController();
  await using guest = await FakeGuest.open({ signal: controller.signal });
  controller.abort();
  await assert.rejects(guest.client.ready, { code: "cancelled" });
});

test("a guest that closes in the middle of a frame is reported as unreachable", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  await guest.acceptStart();
  await process.started;
  guest.socket.end(encodeFrame(frameType.output, process.id, Buffer.alloc(100)).subarray(0, 50));
  await assert.rejects(process.exit, { code: "agent_unreachable" });
  await assert.rejects(process.output.next(), { code: "agent_unreachable" });
  assert.equal(await guest.dropped(), undefined);
});

test("the client skips old bytes before HELLO_OK", async () => {
  await using guest = await FakeGuest.open();
  const ping = guest.client.ping();
  const helloOk = await guest.helloOk();
  guest.socket.write(encodeFrame(frameType.output, 9, Buffer.alloc(50_000, 0xf0)).subarray(7));
  guest.socket.write(encodeFrame(frameType.exit, 9));
  guest.socket.write(helloOk);
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  assert.deepEqual(await guest.client.ready, { version: "fake 1", uptimeMs: 12, unfinished: 0 });
  await ping;
});

test("without a known boundary, the client first sends zeros that complete any payload", async () => {
  const [near, far] = await socketPair();
  const client = AgentClient.open(near, { atBoundary: false });
  let bytes = Buffer.alloc(0);
  while (bytes.length < 65_552 + 37) bytes = Buffer.concat([bytes, (await once(far, "data"))[0] as Buffer]);
  await client[Symbol.asyncDispose]();
  far.destroy();
  assert.equal(bytes.length, 65_552 + 37);
  assert.ok(bytes.subarray(0, 65_552).every((byte) => byte === 0));
  assert.equal(bytes.readUInt32LE(65_552), 0x01014bf0);
});

test("the consumer still gets output from before the end of the connection", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  const id = await guest.acceptStart();
  guest.output(id, 1, 0, "last words");
  guest.socket.end();
  await guest.dropped();
  assert.equal((await process.output.next()).value?.bytes.toString(), "last words");
  await assert.rejects(process.output.next(), { code: "agent_unreachable" });
});

for (const [what, type, parts] of [
  ["OK", frameType.ok, []],
  ["a time of seven bytes", frameType.clockOk, [encodeField(1, Buffer.alloc(7))]],
  ["no time", frameType.clockOk, []],
] as const) {
  test(`${what} as the answer to CLOCK drops the connection`, async () => {
    await using guest = await FakeGuest.ready();
    const asked = guest.client.setClock(1n);
    guest.send(type, (await guest.take(frameType.clock)).id, ...parts);
    await expectDropped(guest, /answer to "set the clock"|field 1/, asked);
  });
}

test("a guest that sends without end gets one chunk in each turn of the event loop", async () => {
  const frame = encodeFrame(frameType.ok, 1);
  const chunk = Buffer.concat(Array.from({ length: 4096 }, () => frame));
  const chunks = 20;
  const socket = new Duplex({ read: () => undefined, write: (_bytes, _encoding, done) => done() });
  let [turn, frames] = [0, 0];
  const framesInTurn = new Map<number, number>();
  const ended = new Promise<void>((resolve) => {
    const onFrame = (): void => {
      framesInTurn.set(turn, (framesInTurn.get(turn) ?? 0) + 1);
      if (++frames === chunks * 4096) resolve();
    };
    const events = { onFrame, onDrain: () => undefined, onEnd: () => undefined };
    void new FrameChannel(socket as unknown as Socket, new FrameParser(), events);
  });
  let isOver = false;
  const count = (): void => {
    turn++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  for (let sent = 0; sent < chunks; sent++) socket.push(chunk);
  await ended;
  isOver = true;
  assert.deepEqual(new Set(framesInTurn.values()), new Set([4096]));
});
