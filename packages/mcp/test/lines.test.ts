import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { unifiedHunks } from "../src/diff/lines.ts";

test("unifiedHunks() shows changes with three lines around them", () => {
  const a = ["1", "2", "3", "4", "5", "6", "7", "8", "9", ""].join("\n");
  assert.equal(
    unifiedHunks(a, a.replace("5\n", "five\n")),
    "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8",
  );
  assert.equal(unifiedHunks("", "x\n"), "@@ -0,0 +1,1 @@\n+x");
  assert.equal(unifiedHunks("x\n", ""), "@@ -1,1 +0,0 @@\n-x");
  assert.equal(unifiedHunks("x\n", "x"), "@@ -1,1 +1,1 @@\n-x\n+x\n\\ No newline at end of file");
});

test("patch(1) turns one text into the other with the hunks of unifiedHunks()", async (t) => {
  const dir = await temporaryDirectory(t);
  let seed = 7;
  const random = (below: number) => (seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % below;
  for (let round = 0; round < 40; round++) {
    const lines = (count: number) => Array.from({ length: count }, () => `line ${random(6)}`);
    const a = lines(random(40));
    const b = a.flatMap((line) => (random(4) === 0 ? lines(random(3)) : [line]));
    const end = () => (random(4) === 0 ? "" : "\n");
    const [before, after] = [
      a.join("\n") + (a.length > 0 ? end() : ""),
      b.join("\n") + (b.length > 0 ? end() : ""),
    ];
    const hunks = unifiedHunks(before, after);
    assert.ok(hunks !== undefined);
    if (before === after) {
      assert.equal(hunks, "");
      continue;
    }
    const file = join(dir, `file-${round}`);
    writeFileSync(file, before);
    const input = `--- a\n+++ b\n${hunks}\n`;
    execFileSync("patch", ["--quiet", "--output", `${file}.new`, file], { input });
    assert.equal(execFileSync("cat", [`${file}.new`]).toString(), after, `round ${round}:\n${input}`);
  }
});

test("unifiedHunks() gives up on texts that differ too much", () => {
  const lines = (mark: string) => Array.from({ length: 5000 }, (_, index) => `${mark}${index}\n`).join("");
  assert.equal(unifiedHunks(lines("a"), lines("b")), undefined);
  assert.equal(unifiedHunks("\n".repeat(60_000), "x\n"), undefined);
});
