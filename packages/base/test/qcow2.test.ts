import assert from "node:assert/strict";
import { test } from "node:test";
import { decodeQcow2Header, encodeQcow2Header, qcow2HeaderBytes, qcow2L1Entries } from "../src/qcow2.ts";

const facts = { virtualBytes: 4096 << 20, l1Entries: 8, l1Offset: 196_608 };

test("decodeQcow2Header() reads what encodeQcow2Header() writes", () => {
  const header = encodeQcow2Header({ ...facts, virtualBytes: 2 ** 40 });
  assert.equal(header.length, qcow2HeaderBytes);
  assert.deepEqual(decodeQcow2Header(header), { ...facts, virtualBytes: 2 ** 40 });
});

test("decodeQcow2Header() refuses images of another form", () => {
  const fields = {
    magic: 0,
    version: 4,
    backing: 16,
    clusters: 20,
    encryption: 32,
    internal: 60,
    features: 72,
  };
  for (const [name, offset] of Object.entries(fields)) {
    const header = encodeQcow2Header(facts);
    header.writeUInt32BE(99, offset);
    assert.equal(decodeQcow2Header(header), undefined, name);
  }
  assert.equal(decodeQcow2Header(Buffer.alloc(0)), undefined, "empty");
});

test("qcow2L1Entries() rounds up to tables of 512 MiB", () => {
  assert.equal(qcow2L1Entries(512 << 20), 1);
  assert.equal(qcow2L1Entries((512 << 20) + 1), 2);
});
