import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chown, mkdir, readFile, stat, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { readJson, writeFileAtomic } from "../src/atomic-file.ts";
import { LogFile } from "../src/log-file.ts";
import { openOwnFile, openOwnFileSync, readOwnFile, UnsafeFile } from "../src/own-file.ts";

/** A directory with one entry of each kind that is not a file of ours, and a file outside of it. */
async function strangers(t: TestContext): Promise<{ dir: string; victim: string }> {
  const root = await temporaryDirectory(t);
  const [dir, victim] = [join(root, "own"), join(root, "victim")];
  await mkdir(dir);
  await writeFile(victim, "{}");
  await symlink(victim, join(dir, "link"));
  await mkdir(join(dir, "directory"));
  execFileSync("mkfifo", [join(dir, "pipe")]);
  const server = createServer().listen(join(dir, "socket"));
  t.after(() => server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  return { dir, victim };
}

const kinds = { link: /symbolic link/, directory: /directory/, pipe: /pipe|regular/, socket: /regular/ };

test("openOwnFile() refuses links and other kinds of files, and names them", async (t) => {
  const { dir, victim } = await strangers(t);
  for (const [name, problem] of Object.entries(kinds)) {
    const path = join(dir, name);
    const isClear = (error: unknown) =>
      error instanceof UnsafeFile && error.path === path && problem.test(error.problem);
    await assert.rejects(openOwnFile(path, { for: "append" }), isClear, name);
    assert.throws(() => openOwnFileSync(path, { for: "append" }), isClear, name);
    await assert.rejects(readOwnFile(path), isClear, name);
    await assert.rejects(readJson(path), isClear, name);
    assert.throws(() => new LogFile({ path, maxBytes: 0, keep: 0, isOwn: true }), isClear, name);
  }
  assert.equal(await readFile(victim, "utf8"), "{}");
});

test("openOwnFile() follows a link to a file if the operator chose the path", async (t) => {
  const { dir } = await strangers(t);
  assert.equal(await readOwnFile(join(dir, "link"), { followLinks: true }), "{}");
  await assert.rejects(readOwnFile(join(dir, "pipe"), { followLinks: true }), UnsafeFile);
});

test("openOwnFile() creates a file for its owner alone", async (t) => {
  const path = join(await temporaryDirectory(t), "new");
  await (await openOwnFile(path, { for: "append" })).close();
  assert.equal((await stat(path)).mode & 0o777, 0o600);
});

test(
  "openOwnFile() refuses a file of another user unless the directory is that user's too",
  { skip: process.getuid?.() === 0 ? false : "only root can give files away" },
  async (t) => {
    const dir = await temporaryDirectory(t);
    const path = join(dir, "file");
    await writeFile(path, "x");
    await chown(path, 12345, 12345);
    await assert.rejects(readOwnFile(path), /another user \(uid 12345\)/);
    await chown(dir, 12345, 12345);
    assert.equal(await readOwnFile(path), "x");
  },
);

test("writeFileAtomic() replaces a link or a pipe without touching its target", async (t) => {
  const { dir, victim } = await strangers(t);
  for (const name of ["link", "pipe"]) {
    await writeFileAtomic(join(dir, name), "new");
    assert.equal(await readOwnFile(join(dir, name)), "new");
  }
  assert.equal(await readFile(victim, "utf8"), "{}");
});
