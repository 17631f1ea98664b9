/** A guest that forges records of files and lists of processes. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { fileBounds, frameBounds } from "../../../src/agent/bounds.ts";
import { listFiles, statFile } from "../../../src/agent/files.ts";
import { decodeFields, encodeField, frameType } from "../../../src/agent/wire/frames.ts";
import { StatRecordParser } from "../../../src/agent/wire/stat-records.ts";
import { FakeGuest, u32, u8 } from "../support/fake-guest.ts";
import { listing, statRecord } from "../support/stat-record.ts";
import { GuestStream } from "../support/hostile-stream.ts";

function record(name: string, target = ""): Buffer {
  return statRecord(name, { target }, target === "" ? "f" : "l");
}

const full = new AppError("capacity_exhausted", "full");

test("StatRecordParser reads records of pieces of any size", () => {
  const stream = Buffer.concat([
    record("a"),
    record("link", "t".repeat(4096)),
    record("é".repeat(100)),
    record("z"),
  ]);
  for (const size of [1, 2, 34, 35, 36, 1000, stream.length]) {
    const parser = new StatRecordParser();
    const names: string[] = [];
    for (let at = 0; at < stream.length; at += size)
      for (const { name, target } of parser.push(stream.subarray(at, at + size)))
        names.push(name + (target ?? "").length);
    parser.end();
    assert.deepEqual(names, ["a0", "link4096", `${"é".repeat(100)}0`, "z0"], `pieces of ${size}`);
  }
});

for (const [what, bytes] of [
  ["a name longer than any path", record("n".repeat(fileBounds.pathBytes + 1))],
  ["a name longer than any name", listing(record("n".repeat(fileBounds.nameBytes + 1)))],
  ["a target longer than any path", record("a", "t".repeat(fileBounds.pathBytes + 1))],
  ["an owner longer than any name", statRecord("a", { owner: "o".repeat(fileBounds.ownerBytes + 1) })],
  ["a link to a path longer than any", statRecord("a", { resolved: `/${"p".repeat(fileBounds.pathBytes)}` })],
] as const) {
  test(`listFiles() refuses ${what}`, async () => {
    await using guest = await FakeGuest.ready();
    const files = listFiles(guest.client, "/dir");
    const refused = assert.rejects(files, (error: AppError) => error.details["errno"] === "EPROTO");
    const id = await guest.acceptStart();
    guest.output(id, 1, 0, bytes);
    await guest.take(frameType.signal);
    guest.exit(id);
    await refused;
  });
}

test("listFiles() refuses a listing of too many bytes", async () => {
  await using guest = await FakeGuest.ready();
  const files = listFiles(guest.client, "/dir");
  const refused = assert.rejects(files, { code: "guest_refused", message: /its names have more than/ });
  const id = await guest.acceptStart();
  const stream = new GuestStream(guest, id, 1);
  const block = Buffer.concat(Array.from({ length: 62 }, () => record("n".repeat(1000))));
  await stream.send(listing());
  while (stream.sent <= fileBounds.listingBytes) await stream.send(block, block.length / 4);
  await guest.take(frameType.signal);
  guest.exit(id);
  await refused;
});

test("listFiles() fails when there is no room for its entries, and kills its process", async () => {
  await using guest = await FakeGuest.ready();
  let held = 0;
  const hold = (bytes: number): void => {
    if (held + bytes > 100_000) throw full;
    held += bytes;
  };
  const refused = assert.rejects(listFiles(guest.client, "/dir", { hold }), full);
  const id = await guest.acceptStart();
  const block = Buffer.concat(Array.from({ length: 100 }, () => record("n".repeat(100))));
  const stream = new GuestStream(guest, id, 1);
  await stream.send(listing(block));
  for (let sent = 0; sent < 3; sent++) await stream.send(block);
  await guest.take(frameType.signal);
  guest.exit(id);
  await refused;
  assert.ok(held > 0 && held <= 100_000);
});

test("listFiles() counts the paths of entries, however short their names are", async () => {
  await using guest = await FakeGuest.ready();
  let held = 0;
  const directory = `/${"d".repeat(4000)}`;
  const files = listFiles(guest.client, directory, { hold: (bytes) => void (held += bytes) });
  const id = await guest.acceptStart();
  await new GuestStream(guest, id, 1).send(listing(...Array.from({ length: 50 }, () => record("n"))));
  guest.exit(id);
  assert.equal((await files)[0]?.path, `${directory}/n`);
  assert.ok(held >= 50 * 4000, `${held} bytes`);
});

test("listFiles() counts two bytes for each character of a name that is not ASCII", async () => {
  await using guest = await FakeGuest.ready();
  let held = 0;
  const files = listFiles(guest.client, "/", { hold: (bytes) => void (held += bytes) });
  const id = await guest.acceptStart();
  guest.output(id, 1, 0, listing(record("€".repeat(300))));
  guest.exit(id);
  await files;
  assert.ok(held >= 2 * 2 * 300, `${held} bytes`);
});

test("listFiles() normalises the directory in the paths of its entries", async () => {
  for (const [asked, path] of [
    ["/", "/n"],
    ["/a//b/../c/", "/a/c/n"],
  ] as const) {
    await using guest = await FakeGuest.ready();
    const files = listFiles(guest.client, asked);
    const id = await guest.acceptStart();
    guest.output(id, 1, 0, listing(record("n")));
    guest.exit(id);
    assert.equal((await files)[0]?.path, path);
  }
});

test("statFile() refuses a second record", async () => {
  await using guest = await FakeGuest.ready();
  const refused = assert.rejects(statFile(guest.client, "/a"), (error: AppError) => {
    return error.details["errno"] === "EPROTO" && /more than one record/.test(error.message);
  });
  const id = await guest.acceptStart();
  guest.output(id, 1, 0, Buffer.concat([record("a"), record("b")]));
  await guest.take(frameType.signal);
  guest.exit(id);
  await refused;
});

test("decodeFields() refuses a payload of many fields", () => {
  const payload = Buffer.concat(Array.from({ length: frameBounds.fields + 1 }, () => encodeField(1, u8(0))));
  assert.throws(() => decodeFields(payload), /more than 64 fields/);
});

test("list() fails when there is no room for its entries, and keeps the connection", async () => {
  await using guest = await FakeGuest.ready();
  let calls = 0;
  const list = guest.client.list(() => {
    if (++calls > 3) throw full;
  });
  const refused = assert.rejects(list, full);
  const { id } = await guest.take(frameType.list);
  for (let sent = 0; sent < 100; sent++) {
    guest.send(
      frameType.listing,
      id,
      encodeField(1, u32(sent + 1)),
      encodeField(2, u32(1)),
      encodeField(3, u8(0)),
      encodeField(5, Buffer.alloc(60_000, "c")),
      encodeField(6, u8(0)),
      encodeField(7, Buffer.alloc(24)),
    );
  }
  guest.send(frameType.ok, id);
  await refused;
  assert.equal(calls, 4, "the rest is not kept");
  const ping = guest.client.ping();
  guest.send(frameType.ok, (await guest.take(frameType.ping)).id);
  await ping;
});
