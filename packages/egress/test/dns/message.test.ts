import assert from "node:assert/strict";
import test from "node:test";
import { decode, encode } from "dns-packet";
import { readQuery, writeAnswer, writeError } from "../../src/dns/message.ts";
import { DnsServer } from "../../src/dns/server.ts";
import { random } from "../support/random.ts";

const query = (name: string, type: "A" | "AAAA" = "A"): Buffer =>
  encode({ id: 7, type: "query", flags: 0x100, questions: [{ type, name }] });

test("readQuery() reads one question and writeAnswer() repeats it as it was written", () => {
  const read = readQuery(query("ExAmple.COM"));
  assert.ok(read && "question" in read);
  const answer = decode(writeAnswer(read, "NOERROR", { address: "198.18.1.1", ttlSeconds: 60 }));
  assert.equal(answer.id, 7);
  assert.equal(answer.questions?.[0]?.name, "ExAmple.COM");
  assert.deepEqual(
    answer.answers?.map((each) => ("data" in each ? each.data : undefined)),
    ["198.18.1.1"],
  );
});

test("readQuery() refuses what is not one question", () => {
  const good = query("example.com");
  const changed = (change: (bytes: Buffer) => void): Buffer => {
    const bytes = Buffer.from(good);
    change(bytes);
    return bytes;
  };
  assert.equal(readQuery(Buffer.alloc(11)), undefined);
  assert.equal(readQuery(Buffer.alloc(5000)), undefined);
  assert.equal(readQuery(changed((bytes) => bytes.writeUInt16BE(0x8000, 2))), undefined);
  assert.deepEqual(readQuery(changed((bytes) => bytes.writeUInt16BE(0x2800, 2))), { id: 7, error: "NOTIMP" });
  assert.deepEqual(readQuery(changed((bytes) => bytes.writeUInt16BE(2, 4))), { id: 7, error: "FORMERR" });
  assert.deepEqual(readQuery(changed((bytes) => bytes.writeUInt16BE(60_000, 6))), {
    id: 7,
    error: "FORMERR",
  });
  assert.deepEqual(readQuery(changed((bytes) => bytes.writeUInt16BE(60_000, 10))), {
    id: 7,
    error: "FORMERR",
  });
  assert.deepEqual(readQuery(good.subarray(0, 20)), { id: 7, error: "FORMERR" });
  assert.equal(writeError(9, "FORMERR").readUInt16BE(0), 9);
});

test("a server survives random packets, and answers only queries", async () => {
  const { below, bytes, pick } = random();
  const asked = new Set<string>();
  for (let round = 0; round < 5000; round++) {
    // A server has a rate; each gets a few packets.
    const server = new DnsServer({
      permits: (name) => {
        asked.add(name);
        return true;
      },
      addressFor: () => Promise.resolve("198.18.0.1"),
      onQuery: () => undefined,
    });
    const packet = pick([bytes(below(600)), Buffer.from(query(`${"a".repeat(1 + below(60))}.example`))]);
    for (let change = below(4); change > 0; change--)
      if (packet.length > 0) packet[below(packet.length)] = below(256);
    // Headers that pass the first checks, so that random bodies are decoded.
    if (packet.length > 12 && below(2) === 0)
      Buffer.from("00070100000100000000000" + below(2), "hex").copy(packet);
    const answer = await server.answer(packet);
    if (answer) {
      assert.ok(answer.length >= 12 && answer.length < 1500);
      assert.ok((answer.readUInt16BE(2) & 0x8000) !== 0);
    }
  }
  for (const name of asked) assert.match(name, /^[a-z0-9_.-]+$/);
});
