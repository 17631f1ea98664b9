import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createLogger } from "../src/logger.ts";
import { LogFile } from "../src/log-file.ts";
import { temporaryDirectory } from "@forkd/test-support";

const line = (text: string) => `${text.padEnd(9, ".")}\n`;

test("write() rotates a full file and deletes the oldest", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "logs", "d.log");
  const log = new LogFile({ path, maxBytes: 20, keep: 2 });
  for (const text of ["1", "2", "3", "4", "5", "6", "7"]) log.write(line(text));
  assert.deepEqual((await readdir(join(dir, "logs"))).sort(), ["d.log", "d.log.1", "d.log.2"]);
  assert.equal(await readFile(path, "utf8"), line("7"));
  assert.equal(await readFile(`${path}.1`, "utf8"), line("5") + line("6"));
  assert.equal(await readFile(`${path}.2`, "utf8"), line("3") + line("4"));
  assert.equal((await stat(path)).mode & 0o777, 0o600);
});

test("write() appends to the file of an earlier process and counts its size", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "d.log");
  await writeFile(path, line("old") + line("old"));
  new LogFile({ path, maxBytes: 20, keep: 0 }).write(line("new"));
  assert.equal(await readFile(path, "utf8"), line("new"));
  assert.deepEqual(await readdir(dir), ["d.log"]);
});

test("write() never rotates when maxBytes is 0", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "d.log");
  const log = new LogFile({ path, maxBytes: 0, keep: 4 });
  for (let count = 0; count < 100; count += 1) log.write(line("x"));
  assert.equal((await stat(path)).size, 1000);
  assert.deepEqual(await readdir(dir), ["d.log"]);
});

test("reopen() continues in the file that has the name now", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "d.log");
  const log = new LogFile({ path, maxBytes: 0, keep: 0 });
  log.write(line("a"));
  await rename(path, `${path}-moved`);
  log.write(line("b"));
  log.reopen();
  log.write(line("c"));
  assert.equal(await readFile(`${path}-moved`, "utf8"), line("a") + line("b"));
  assert.equal(await readFile(path, "utf8"), line("c"));
});

test("write() counts lines that a full disk refuses and reports them when there is room", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "d.log");
  await symlink("/dev/full", path);
  const log = new LogFile({ path, maxBytes: 0, keep: 0 });
  log.write(line("a"));
  log.write(line("b"));
  await rm(path);
  log.reopen();
  log.write(line("c"));
  const [first, second] = (await readFile(path, "utf8")).split("\n");
  const { event, lines } = JSON.parse(first ?? "") as Record<string, unknown>;
  assert.deepEqual({ event, lines }, { event: "log.lost", lines: 2 });
  assert.equal(`${second}\n`, line("c"));
});

test("write() keeps appending when rotation fails", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "d.log");
  // What is in the way of the rotated file is a directory that is not empty.
  const log = new LogFile({ path, maxBytes: 20, keep: 1 });
  await mkdir(`${path}.1/x`, { recursive: true });
  for (const text of ["1", "2", "3"]) log.write(line(text));
  assert.equal(await readFile(path, "utf8"), line("1") + line("2") + line("3"));
});

test("createLogger() writes its records to a LogFile", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "d.log");
  createLogger({ level: "info", destination: new LogFile({ path, maxBytes: 0, keep: 0 }) }).info({
    event: "x",
  });
  assert.equal((JSON.parse(await readFile(path, "utf8")) as { event: string }).event, "x");
});

test("write() starts a new line after a line that a full disk cut short", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root to mount a small file system");
  const dir = await temporaryDirectory(t);
  const small = join(dir, "small");
  await mkdir(small);
  const mount = (options: string) =>
    execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", small], { stdio: "ignore" });
  try {
    mount("size=4k");
  } catch (error) {
    return t.skip(`cannot mount: ${String(error)}`);
  }
  try {
    const path = join(small, "d.log");
    const log = new LogFile({ path, maxBytes: 0, keep: 0 });
    const long = `${"x".repeat(2999)}\n`;
    log.write(long);
    log.write(long);
    mount("remount,size=64k");
    log.write("after\n");
    const [whole, , lost, after] = (await readFile(path, "utf8")).split("\n");
    assert.equal(`${whole}\n`, long);
    assert.equal((JSON.parse(lost ?? "") as { event: string }).event, "log.lost");
    assert.equal(after, "after");
  } finally {
    execFileSync("umount", ["-l", small]);
  }
});
