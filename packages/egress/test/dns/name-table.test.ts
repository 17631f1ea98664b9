import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "node:test";
import { nullLogger } from "@forkd/base";
import { temporaryDirectory } from "@forkd/test-support";
import { NameTable } from "../../src/dns/name-table.ts";
import { isSynthetic } from "../../src/policy/address-kind.ts";

const log = nullLogger();

test("an address follows from its name, and the name from its address", async () => {
  const [one, other] = await Promise.all([NameTable.open({ log }), NameTable.open({ log })]);
  other.addressOf("first.example");
  const address = one.addressOf("a.example");
  assert.ok(isSynthetic(address));
  assert.equal(other.addressOf("a.example"), address);
  assert.equal(one.nameOf(address), "a.example");
  assert.equal(one.addressOf("a.example"), address);
  assert.equal(one.nameOf("198.18.0.0"), undefined);
  assert.equal(one.nameOf("10.0.0.1"), undefined);
  assert.equal(one.nameOf("nonsense"), undefined);
});

test("many names have different addresses, and the table is bounded by the least recently used", async () => {
  const table = await NameTable.open({ log, maxNames: 1000 });
  const kept = table.addressOf("kept.example");
  const addresses = new Set<string>();
  for (let index = 0; index < 3000; index++) {
    addresses.add(table.addressOf(`n${index}.example`));
    assert.equal(table.nameOf(kept), "kept.example");
  }
  assert.ok(addresses.size > 2900);
  assert.equal(table.size, 1000);
  assert.equal(table.nameOf(table.addressOf("n2999.example")), "n2999.example");
});

test("a table is kept in its file; a file that is damaged is replaced", async (t) => {
  const file = join(await temporaryDirectory(t), "net", "names.json");
  const addresses: string[] = [];
  {
    await using table = await NameTable.open({ file, log });
    addresses.push(table.addressOf("a.example"), table.addressOf("b.example"));
  }
  {
    await using table = await NameTable.open({ file, log });
    assert.deepEqual(
      addresses.map((address) => table.nameOf(address)),
      ["a.example", "b.example"],
    );
  }
  const text = JSON.stringify({
    version: 1,
    names: {
      "c.example": addresses[0],
      "d.example": addresses[0],
      "e.example": "10.0.0.1",
      "0x7f.1": "198.18.9.9",
    },
  });
  for (const damaged of ["{", "[]", '{"version":2,"names":{}}', text]) {
    await writeFile(file, damaged);
    await using table = await NameTable.open({ file, log });
    assert.equal(table.size, damaged === text ? 1 : 0);
    table.addressOf("f.example");
  }
  assert.match(await readFile(file, "utf8"), /f\.example/);
});
