import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { encodeCpio } from "../src/cpio.ts";
import { temporaryDirectory } from "./support.ts";

const hex = (...numbers: number[]): string => numbers.map((n) => n.toString(16).padStart(8, "0")).join("");

test("encodeCpio() writes these bytes", () => {
  const archive = encodeCpio([
    { path: "init", type: "file", mode: 0o755, content: Buffer.from("hello") },
    { path: "dev", type: "directory", mode: 0o755 },
    { path: "dev/console", type: "character", mode: 0o600, major: 5, minor: 1 },
  ]);
  const expected = [
    `070701${hex(1, 0o040755, 0, 0, 2, 0, 0, 0, 0, 0, 0, 4, 0)}dev\0\0\0`,
    `070701${hex(2, 0o020600, 0, 0, 1, 0, 0, 0, 0, 5, 1, 12, 0)}dev/console\0\0\0`,
    `070701${hex(3, 0o100755, 0, 0, 1, 0, 5, 0, 0, 0, 0, 5, 0)}init\0\0hello\0\0\0`,
    `070701${hex(0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 11, 0)}TRAILER!!!\0\0\0\0`,
  ];
  assert.equal(Buffer.from(archive).toString("latin1"), expected.join(""));
});

test("encodeCpio() makes an archive that cpio reads", async (t) => {
  const dir = await temporaryDirectory(t);
  const content = Buffer.alloc(5000, 7);
  await writeFile(join(dir, "a.cpio"), encodeCpio([{ path: "b", type: "file", mode: 0o640, content }]));
  const { stdout } = await runProgram("cpio", ["-tv", "-F", join(dir, "a.cpio")]);
  assert.match(stdout, /^-rw-r-----\s+1 root\s+root\s+5000 Jan\s+1\s+1970 b$/m);
});

test("encodeCpio() refuses a path twice and an absolute path", () => {
  const entry = { path: "a", type: "directory", mode: 0o755 } as const;
  assert.throws(() => encodeCpio([entry, entry]), /"a" twice/);
  assert.throws(() => encodeCpio([{ ...entry, path: "/a" }]), /Cannot pack/);
});
