/**
 * A guest that sends much random data: every pending call fails with a clear error, the host keeps little of
 * the data, and other connections are not affected. `FORKD_FUZZ_SEED` repeats a run.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { AppError } from "@forkd/contract";
import { listFiles, readFile, statFile, writeFile } from "../../../src/agent/files.ts";
import { encodeField, encodeFrame, frameType } from "../../../src/agent/wire/frames.ts";
import { KernelClient } from "../../../src/agent/kernel/client.ts";
import { FakeGuest, u32, u64, u8 } from "../support/fake-guest.ts";
import { statRecord } from "../support/stat-record.ts";
import { Random } from "../support/random.ts";

const seed = Number(process.env["FORKD_FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const mib = 1024 * 1024;
const expected = new Set([
  "agent_unreachable",
  "kernel_failed",
  "guest_refused",
  "file_not_found",
  "already_exists",
  "disk_full",
  "capacity_exhausted",
  "cancelled",
]);
const types = Object.values(frameType);

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const unhandled: unknown[] = [];
process.on("unhandledRejection", (reason) => unhandled.push(reason));

function heldBytes(): number {
  collect();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Typical calls of the host; each settles at the latest when the connection ends. */
function useOf(guest: FakeGuest): Promise<PromiseSettledResult<unknown>[]> {
  const { client } = guest;
  const drain = async (output: AsyncIterable<unknown>): Promise<void> => {
    for await (const piece of output) void piece;
  };
  const process = client.start({ argv: ["x"] });
  const started = [
    client.ready,
    client.ping(),
    client.list(),
    client.setClock(1n),
    process.started,
    process.exit,
    drain(process.output),
  ];
  const files = [
    listFiles(client, "/x"),
    statFile(client, "/x"),
    readFile(client, "/x").then(drain),
    writeFile(client, "/x", [Buffer.alloc(100_000)]),
  ];
  const kernel = KernelClient.attach(client, {
    processId: 77,
    offsets: [0, 0, 0],
    nextEvalId: 1,
    unanswered: [],
  });
  return Promise.allSettled([
    ...started,
    ...files,
    kernel.evaluate({ code: "1", context: "default" }),
    kernel.contexts(),
  ]);
}

function assertOnlyOurs(settled: readonly PromiseSettledResult<unknown>[]): void {
  for (const outcome of settled) {
    if (outcome.status === "fulfilled") continue;
    const error: unknown = outcome.reason;
    assert.ok(error instanceof AppError, `seed ${seed}: ${String(error)}`);
    assert.ok(expected.has(error.code), `seed ${seed}: ${error.code}: ${error.message}`);
  }
}

/** Bytes of which parts look like the protocol. */
function hostileBytes(random: Random, ids: readonly number[]): Buffer {
  const id = () => ids[random.below(ids.length)] ?? random.below(2 ** 32);
  const payload = () => random.bytes(random.below(random.below(4) === 0 ? 3000 : 40));
  switch (random.below(7)) {
    case 0:
      return random.bytes(1 + random.below(500));
    case 1: {
      const frame = encodeFrame(types[random.below(types.length)] ?? 0, id(), payload());
      frame.writeUInt32LE(random.below(2 ** 32), random.below(4) * 4);
      return frame;
    }
    case 2:
      return encodeFrame(random.below(256), id(), payload());
    case 3:
      return encodeFrame(
        frameType.output,
        id(),
        u8(1 + random.below(3)),
        u64(random.below(3) === 0 ? 2n ** 63n : 0),
        payload(),
      );
    case 4:
      return encodeFrame(
        types[random.below(types.length)] ?? 0,
        id(),
        encodeField(random.below(9), payload()),
      );
    case 5:
      return encodeFrame(frameType.started, id(), encodeField(1, u32(random.below(2 ** 32))));
    default:
      return encodeFrame(types[random.below(types.length)] ?? 0, id(), payload());
  }
}

test(`garbage fails the pending calls of its own connection only (seed ${seed})`, async () => {
  const random = new Random(seed);
  await using bystander = await FakeGuest.ready();
  const before = heldBytes();
  for (let round = 0; round < 80; round++) {
    await using guest = random.below(5) === 0 ? await FakeGuest.open() : await FakeGuest.ready();
    const uses = useOf(guest);
    if (random.below(3) > 0) await once(guest.socket, "data").catch(() => undefined);
    const ids = guest.received.map((frame) => frame.id);
    for (let count = random.below(30); count >= 0 && !guest.client.isClosed; count--)
      guest.socket.write(hostileBytes(random, ids));
    guest.socket.end();
    await guest.client.closed;
    assertOnlyOurs(await uses);
  }
  const ping = bystander.client.ping();
  bystander.send(frameType.ok, (await bystander.take(frameType.ping)).id);
  await ping;
  const grown = heldBytes() - before;
  assert.ok(grown < 40 * mib, `${Math.round(grown / mib)} MiB more are kept`);
  assert.deepEqual(unhandled, []);
});

test("a valid session that ends at any byte gives a result or agent_unreachable", async () => {
  /** The guest's side of a session: command with output and exit. */
  const session = (id: number): Buffer =>
    Buffer.concat([
      encodeFrame(frameType.started, id, encodeField(1, u32(7))),
      encodeFrame(frameType.output, id, u8(1), u64(0), Buffer.from("hello")),
      encodeFrame(frameType.outputEof, id, u8(1), u64(5)),
      encodeFrame(frameType.outputEof, id, u8(2), u64(0)),
      encodeFrame(frameType.exit, id, Buffer.from([0, 3, 0, 0]), u64(5), u64(0), u64(0)),
    ]);
  const whole = session(1).length;
  for (let cut = 0; cut <= whole; cut++) {
    await using guest = await FakeGuest.ready();
    const process = guest.client.start({ argv: ["x"] });
    const { id } = await guest.take(frameType.start);
    guest.socket.end(session(id).subarray(0, cut));
    const outcome = await process.exit.then(
      ({ code }) => code,
      (error: unknown) => (error as AppError).code,
    );
    assert.equal(outcome, cut === whole ? 3 : "agent_unreachable", `cut at ${cut}`);
  }
});

test("a session that arrives byte by byte gives the same result", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] });
  const { id } = await guest.take(frameType.start);
  const frames = [
    encodeFrame(frameType.started, id, encodeField(1, u32(7))),
    encodeFrame(frameType.output, id, u8(1), u64(0), Buffer.from("slow")),
    encodeFrame(frameType.exit, id, Buffer.from([0, 0, 0, 0]), u64(4), u64(0), u64(0)),
  ];
  for (const byte of Buffer.concat(frames)) {
    guest.socket.write(Buffer.from([byte]));
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await process.output.next()).value?.bytes.toString(), "slow");
  assert.equal((await process.exit).code, 0);
});

test("300,000 unread bytes in frames of one byte use little memory", async () => {
  await using guest = await FakeGuest.ready();
  const process = guest.client.start({ argv: ["x"] }, { windowBytes: 1024 * 1024 });
  const id = await guest.acceptStart();
  await process.started;
  const before = heldBytes();
  const batch = 2000;
  for (let at = 0; at < 300_000; at += batch) {
    const frames = Array.from({ length: batch }, (_, index) =>
      encodeFrame(frameType.output, id, u8(1), u64(at + index), Buffer.from("x")),
    );
    if (!guest.socket.write(Buffer.concat(frames))) await once(guest.socket, "drain");
  }
  const ping = guest.client.ping();
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  await ping;
  const grown = heldBytes() - before;
  assert.ok(grown < 20 * mib, `${Math.round(grown / mib)} MiB are kept for 300,000 bytes`);
  assert.equal(guest.client.isClosed, false);
  let read = 0;
  while (read < 300_000) read += (await process.output.next()).value?.bytes.length ?? Number.NaN;
});

test("listFiles() refuses an endless listing and does not keep its bytes", async () => {
  await using guest = await FakeGuest.ready();
  const listing = listFiles(guest.client, "/");
  listing.catch(() => undefined);
  const { id } = await guest.take(frameType.start);
  guest.send(frameType.started, id, encodeField(1, u32(7)));
  // One record: a file with the shortest name.
  const record = statRecord("a");
  const piece = Buffer.concat(Array.from({ length: 1000 }, () => record));
  let offset = 0;
  let credit = 256 * 1024;
  const before = heldBytes();
  const killed = () => guest.received.some((frame) => frame.type === frameType.signal);
  for (let sent = 0; sent < 400 && !killed(); sent++) {
    while (credit < piece.length && !killed()) {
      const granted = guest.received.findIndex((frame) => frame.type === frameType.credit);
      if (granted === -1) await once(guest.socket, "data");
      else credit += guest.received.splice(granted, 1)[0]?.payload.readUInt32LE(1) ?? 0;
    }
    guest.output(id, 1, offset, piece.subarray(0, Math.min(piece.length, credit)));
    offset += piece.length;
    credit -= piece.length;
  }
  await guest.take(frameType.signal);
  guest.send(frameType.exit, id, Buffer.from([1, 9, 0, 0]), u64(0), u64(0), u64(0));
  await assert.rejects(listing, { code: "guest_refused", message: /more than 100000 entries/ });
  const grown = heldBytes() - before;
  assert.ok(grown < 80 * mib, `${Math.round(grown / mib)} MiB are kept`);
});

test("a kernel that claims gigabytes or sends invalid messages fails, not its agent", async () => {
  const claim = Buffer.from([0x56, 0, 0, 0, 0xff]);
  const garbage = [
    claim,
    Buffer.alloc(64, 0xaa),
    Buffer.from("V\x04\0\0\0\x01\0\0\0", "latin1"),
    Buffer.from("A\x01\0\0\0x", "latin1"),
  ];
  for (const bytes of garbage) {
    await using guest = await FakeGuest.ready();
    const kernel = KernelClient.attach(guest.client, {
      processId: 5,
      offsets: [0, 0, 0],
      nextEvalId: 1,
      unanswered: [],
    });
    const evaluated = kernel.evaluate({ code: "1", context: "default" });
    evaluated.catch(() => undefined);
    await guest.take(frameType.attach);
    guest.send(frameType.ok, 5);
    guest.output(5, 3, 0, bytes);
    await assert.rejects(evaluated, { code: "kernel_failed" });
    const ping = guest.client.ping();
    guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
    await ping;
  }
  assert.deepEqual(unhandled, []);
});
