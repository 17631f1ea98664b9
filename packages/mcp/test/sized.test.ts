import assert from "node:assert/strict";
import { test } from "node:test";
import { collect, Collector } from "../src/results/collector.ts";
import { OutputStore } from "../src/results/output-store.ts";
import { outputIdOf, partialOutputs } from "../src/results/partial.ts";
import { sized } from "../src/results/sized.ts";

test("Collector keeps the beginning and the end of output of any length, in pieces of any length", () => {
  for (const piece of [1, 3, 7, 100, 5000]) {
    const collector = new Collector(10);
    const all = Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 251));
    for (let at = 0; at < all.length; at += piece) collector.push(all.subarray(at, at + piece));
    const { head, tail, missing, total } = collector.collected();
    assert.deepEqual([...head], [...all.subarray(0, 10)]);
    assert.deepEqual([...tail], [...all.subarray(-10)]);
    assert.deepEqual([missing, total], [980, 1000]);
  }
  const short = new Collector(10);
  short.push(Buffer.from("0123456789abc"));
  const { head, tail, missing } = short.collected();
  assert.deepEqual(
    [Buffer.from(head).toString(), Buffer.from(tail).toString(), missing],
    ["0123456789", "abc", 0],
  );
});

test("sized() accounts for every byte, cuts at lines, and never inside a character", () => {
  const texts = [
    "é".repeat(5000),
    "line\n".repeat(5000),
    `${"x".repeat(3000)}\n${"😀".repeat(3000)}`,
    "a\n\n".repeat(900),
  ];
  for (const text of texts) {
    for (const limit of [512, 513, 514, 515, 1000]) {
      const shown = sized(collect(text), limit, "See there.");
      const [, left = "", total = ""] =
        /\[(\d+) of (\d+) bytes are left out here\. See there\.\]/.exec(shown.text) ?? [];
      assert.equal(Number(total), Buffer.byteLength(text));
      assert.equal(Number(left), shown.leftOut);
      assert.equal(shown.replaced, 0, "no character is cut");
      const [head = "", tail = ""] = shown.text.split(/\n\[.*\]\n/);
      assert.ok(text.startsWith(head) && text.endsWith(tail));
      const bytes = Buffer.byteLength(head) + Buffer.byteLength(tail);
      assert.ok(bytes <= limit);
      // The line end before the gap is a byte of the output, or belongs to the gap.
      assert.ok([0, 1].includes(Number(total) - Number(left) - bytes));
    }
  }
  assert.deepEqual(sized(collect("short"), 512, ""), { text: "short", leftOut: 0, replaced: 0 });
});

test("OutputStore is bounded in bytes, entries and age", () => {
  const store = new OutputStore({ bytes: 100, entries: 5, ageMs: 60_000 });
  const first = store.add("first", collect("x".repeat(60)));
  const second = store.add("second", collect("y".repeat(60)));
  assert.equal(store.get(outputIdOf(first) ?? ""), undefined);
  assert.equal(store.get(outputIdOf(second) ?? "")?.name, "second");
  for (let index = 0; index < 10; index++) store.add(`entry ${index}`, collect("z"));
  assert.deepEqual(
    store
      .list()
      .map(({ name }) => name)
      .slice(-1),
    ["entry 9"],
  );
  assert.equal(store.list().length, 5);
  assert.equal(store.bytes, 5);
  const old = new OutputStore({ ageMs: -1 });
  assert.equal(old.get(outputIdOf(old.add("old", collect("x"))) ?? ""), undefined);
  assert.equal(outputIdOf("forkd://outputs/../x"), undefined);
});

test("partialOutputs() stores and links only what it cuts", () => {
  const store = new OutputStore();
  const how = { store, limit: 512, of: "a command" };
  const { texts, fields, links } = partialOutputs(
    { stdout: collect("x".repeat(2000)), stderr: collect("ok\0") },
    how,
  );
  assert.equal(texts["stderr"], "ok␀");
  assert.deepEqual(Object.keys(fields.left_out_bytes ?? {}), ["stdout"]);
  assert.equal(fields.replaced_characters, 1);
  assert.equal(links.length, 1);
  assert.equal(store.list()[0]?.name, "stdout of a command");
  assert.deepEqual(partialOutputs({ stdout: collect("x") }, how).fields, {});
});
