import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { nativeTool, runProgram } from "@forkd/base";
import { temporaryDirectory } from "@forkd/test-support";

test("the preload opens exactly one path without write access", async (t) => {
  const dir = await temporaryDirectory(t);
  const memory = join(dir, "memory");
  const other = join(dir, "memory2");
  for (const path of [memory, other]) writeFileSync(path, "x");
  // Opens each file for reading and writing, and prints how it is open.
  const script = `
    const { openSync, readFileSync, constants } = require("node:fs");
    for (const path of process.argv.slice(1)) {
      const fd = openSync(path, constants.O_RDWR);
      console.log(Number.parseInt(/flags:\\t(\\d+)/.exec(readFileSync("/proc/self/fdinfo/" + fd, "utf8"))[1], 8) & 3);
    }
    try {
      require("node:fs").writeSync(openSync(process.argv[1], constants.O_RDWR), "y");
    } catch (error) {
      console.log(error.code);
    }
    console.log(openSync(process.argv[1], constants.O_WRONLY) > 0);
    console.log(openSync(process.argv[2] + ".new", constants.O_RDWR | constants.O_CREAT, 0o640) > 0);`;
  const env = { LD_PRELOAD: nativeTool("libforkd-preload.so"), FORKD_READ_ONLY: memory };
  const args = ["-e", script, memory, other, `${dir}/./memory`];
  const { stdout } = await runProgram(process.execPath, args, { env });
  assert.deepEqual(stdout.trim().split("\n"), ["0", "2", "2", "EBADF", "true", "true"]);
});
