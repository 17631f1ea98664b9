import assert from "node:assert/strict";
import { test } from "node:test";
import { labelsOf } from "../src/control/labels.ts";
import { insideOf } from "../src/control/metrics-history.ts";
import { BuildLog, LogLines } from "../src/templates/build-log.ts";
import { uuidOf } from "../src/templates/names.ts";
import { withoutPatterns } from "../src/templates/steps.ts";

test("insideOf() reads memory and disk, and leaves out what is not a number", () => {
  const text = [
    "MemTotal:        1000 kB",
    "MemFree:          100 kB",
    "MemAvailable:     400 kB",
    "Cached:           200 kB",
    "Filesystem 1024-blocks Used Available Capacity Mounted on",
    "/dev/vda 5000 2000 3000 40% /",
  ].join("\n");
  const kib = 1024;
  assert.deepEqual(insideOf(text), {
    memTotal: 1000 * kib,
    memUsed: 600 * kib,
    memCache: 200 * kib,
    diskTotal: 5000 * kib,
    diskUsed: 2000 * kib,
  });
  assert.deepEqual(insideOf("MemTotal: 99999999999999999999 kB\nCached: x kB"), {});
});

test("labelsOf() keeps the entries that can be labels", () => {
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`k${at}`, "v"]));
  assert.deepEqual(labelsOf({ a: "1", "b c": "2", d: "x".repeat(257) }), { a: "1" });
  assert.equal(Object.keys(labelsOf(many)).length, 32);
});

test("withoutPatterns() gives the part of a source that the archive has", () => {
  for (const [given, kept] of [
    ["hello.txt", "hello.txt"],
    ["./src/app", "src/app"],
    ["src/*.ts", "src/"],
    ["**/*.ts", "/"],
    ["../../etc/passwd", "etc/passwd"],
    ["/etc/passwd", "etc/passwd"],
    ["a/../../b", "b"],
  ])
    assert.equal(withoutPatterns(given ?? ""), kept, given);
});

test("a build's log is bounded, and is empty past its end", () => {
  const log = new BuildLog();
  for (let at = 0; at < 20_100; at++) log.add(at === 0 ? "x".repeat(5000) : "x");
  assert.equal(log.from(0).length, 100);
  assert.equal(log.from(0)[0]?.message.length, 4096);
  assert.match(log.from(20_000)[0]?.message ?? "", /The log is full/);
  assert.deepEqual(log.from(20_001), []);
});

test("LogLines splits output into lines, whole or not", () => {
  const seen: string[] = [];
  const lines = new LogLines((line) => void seen.push(line));
  lines.push("a\nb");
  lines.push("c\n\nd");
  lines.end();
  lines.push("y".repeat(5000));
  assert.deepEqual(seen.slice(0, 4), ["a", "bc", "", "d"]);
  assert.equal(seen[4]?.length, 5000);
});

test("uuidOf() has the form of a UUID, and is the same for the same tag", () => {
  assert.match(uuidOf("python"), /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
  assert.equal(uuidOf("python"), uuidOf("python"));
  assert.notEqual(uuidOf("python"), uuidOf("node"));
});
