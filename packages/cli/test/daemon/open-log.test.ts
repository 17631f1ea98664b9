import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { openOwnLog } from "../../src/daemon/open-log.ts";

test("openOwnLog() refuses a link, a pipe and a directory, and names the file", async (t) => {
  const dir = await temporaryDirectory(t);
  await writeFile(join(dir, "victim"), "untouched");
  await symlink(join(dir, "victim"), join(dir, "link"));
  await mkdir(join(dir, "directory"));
  execFileSync("mkfifo", [join(dir, "pipe")]);
  for (const name of ["link", "pipe", "directory"])
    await rejectsWith(openOwnLog(join(dir, name)), "host_not_ready", new RegExp(`/${name}"`));
  assert.equal(await readFile(join(dir, "victim"), "utf8"), "untouched");
  await (await openOwnLog(join(dir, "daemon.log"))).close();
});
