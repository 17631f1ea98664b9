/** Flow control and order, as seen from the guest's end of the socket. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { AgentClient } from "../../../src/agent/client.ts";
import { ProtocolError } from "../../../src/agent/errors.ts";
import { encodeField, encodeFrame, frameType } from "../../../src/agent/wire/frames.ts";
import type { AgentProcess } from "../../../src/agent/process/process.ts";
import { FakeGuest, socketPair, u32, u64, u8 } from "../support/fake-guest.ts";

const windowBytes = 65_536;
const block = Buffer.alloc(32_768);

async function fill(process: AgentProcess, guest: FakeGuest, id: number, count: number): Promise<void> {
  const frames: Buffer[] = [];
  for (let index = 0; index < count; index++) {
    const stream = 1 + (index % 2);
    frames.push(encodeFrame(frameType.output, id, u8(stream), u64(index >> 1), Buffer.from([index])));
  }
  guest.socket.write(Buffer.concat(frames));
  const ping = guest.client.ping();
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  await ping;
  assert.deepEqual(process.offsets, [count >> 1, count >> 1, 0]);
}

test("output byte by byte arrives complete in a limited number of entries", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  const id = await guest.acceptStart();
  await fill(process, guest, id, 60_000);
  guest.exit(id);
  await process.exit;
  const seen = { 1: 0, 2: 0, 3: 0 };
  let entries = 0;
  for await (const { stream, offset, bytes } of process.output) {
    assert.equal(offset, seen[stream]);
    bytes.forEach((byte, index) => assert.equal(byte, ((offset + index) * 2 + stream - 1) & 255));
    seen[stream] += bytes.length;
    entries++;
  }
  assert.deepEqual(seen, { 1: 30_000, 2: 30_000, 3: 0 });
  assert.ok(entries <= 1100, `${entries} entries`);
});

test("the client sends credit only for consumed output", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] }, { windowBytes });
  const id = await guest.acceptStart();
  guest.output(id, 1, 0, block);
  guest.output(id, 1, block.length, block);
  await process.started;
  const ping = guest.client.ping();
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  await ping;
  assert.equal(
    guest.received.some(({ type }) => type === frameType.credit),
    false,
  );
  const { value } = await process.output.next();
  const credit = await guest.take(frameType.credit);
  assert.deepEqual(
    [credit.id, credit.payload[0], credit.payload.readUInt32LE(1)],
    [id, 1, value?.bytes.length],
  );
});

test("input stops at the window and continues with credit", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"], stdin: true });
  const id = await guest.acceptStart();
  let written = false;
  const write = process.write(Buffer.alloc(100_000)).then(() => (written = true));
  let got = 0;
  while (got < 65_536) got += (await guest.take(frameType.input)).payload.length - 2;
  const ping = guest.client.ping();
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  await ping;
  assert.deepEqual([got, written, guest.received.length], [65_536, false, 0]);
  guest.send(frameType.inputCredit, id, u8(0), u32(40_000));
  await write;
  assert.equal((await guest.take(frameType.input)).payload.length - 2, 100_000 - 65_536);
});

test("frames of one tick leave in one write", async () => {
  const [near, far] = await socketPair();
  const client = AgentClient.open(near, { atBoundary: true });
  await once(far, "data");
  let single = 0;
  const together: number[] = [];
  const write = near._write.bind(near);
  const writev = near._writev?.bind(near);
  near._write = (...call) => {
    single++;
    write(...call);
  };
  near._writev = (...call) => {
    together.push(call[0].length);
    writev?.(...call);
  };
  const process = client.start({ argv: ["x"], stdin: true });
  void client.ping().catch(() => undefined);
  void process.write(Buffer.from("x")).catch(() => undefined);
  await once(far, "data");
  assert.deepEqual([single, together], [0, [3]]);
  await client[Symbol.asyncDispose]();
  far.destroy();
});

test("output in transit at a detach is not a violation", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  const id = await guest.acceptStart();
  await process.started;
  const left = process.detach();
  guest.output(id, 1, 0, "late");
  const { id: pingId } = await guest.take(frameType.ping);
  guest.send(frameType.ok, pingId);
  await left;
  assert.equal(guest.client.isClosed, false);
  guest.output(id, 1, 4, "too late");
  assert.ok((await guest.dropped()) instanceof ProtocolError);
});

test("the client does not use ids that the guest has listed", async () => {
  await using guest = await FakeGuest.ready();
  const list = guest.client.list();
  const { id } = await guest.take(frameType.list);
  for (const taken of [id + 1, id + 2]) {
    guest.send(
      frameType.listing,
      id,
      encodeField(1, u32(taken)),
      encodeField(2, u32(1)),
      encodeField(3, u8(0)),
      encodeField(6, u8(0)),
      encodeField(7, Buffer.alloc(24)),
    );
  }
  guest.send(frameType.ok, id);
  await list;
  assert.equal(guest.client.start({ argv: ["x"] }).id, id + 3);
});

test("a guest that does not read its port loses its connection", async () => {
  await using guest = await FakeGuest.ready();
  guest.socket.pause();
  const argv = ["x", "y".repeat(60_000)];
  const processes = Array.from({ length: 600 }, () => guest.client.start({ argv }));
  const reason = await guest.dropped();
  assert.match(reason?.message ?? "", /does not read its port/);
  await assert.rejects(processes[0]!.started, { code: "agent_unreachable" });
});

test("unread output in too many pieces drops the connection", async () => {
  await using guest = await FakeGuest.ready();
  guest.client.start({ argv: ["x"], control: true });
  const id = await guest.acceptStart();
  const frames = Array.from({ length: 17_000 }, (_, index) =>
    encodeFrame(frameType.output, id, u8(index % 2 === 0 ? 1 : 3), u64(index >> 1), u8(0)),
  );
  guest.socket.write(Buffer.concat(frames));
  assert.match((await guest.dropped())?.message ?? "", /too many pieces/);
});

test("a few pieces of two streams keep their order", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  const id = await guest.acceptStart();
  for (let index = 0; index < 6; index++) guest.output(id, 1 + (index % 2), index >> 1, String(index));
  guest.exit(id);
  await process.exit;
  let text = "";
  for await (const { bytes } of process.output) text += bytes.toString();
  assert.equal(text, "012345");
});
