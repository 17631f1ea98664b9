import assert from "node:assert/strict";
import { test } from "node:test";
import { BuildLog } from "../src/templates/build-log.ts";

function allOf(log: BuildLog) {
  const entries = [];
  for (let page = log.from(0); page.length > 0; page = log.from(entries.length)) entries.push(...page);
  return entries;
}

for (const [what, line] of [
  ["short", "x"],
  ["long", "x".repeat(5000)],
] as const)
  test(`a log of ${what} lines is bounded, says where it ends, and keeps the failure of the build`, () => {
    const log = new BuildLog();
    for (let at = 0; at < 25_000; at++) log.add(line);
    log.add("The command failed", { level: "error" });
    const entries = allOf(log);
    assert.ok(entries.length <= 20_002);
    const chars = entries.reduce((sum, { message }) => sum + message.length, 0);
    assert.ok(chars < 1024 * 1024 + 3 * 4096, `${chars}`);
    const [notice, failure] = entries.slice(-2);
    assert.deepEqual([notice?.level, failure?.level], ["warn", "error"]);
    assert.match(notice?.message ?? "", /The log is full/);
  });
