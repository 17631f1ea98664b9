import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import {
  chmod,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  stat,
  truncate,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { isErrno } from "../src/atomic-file.ts";
import { copySparse, dataRanges } from "../src/sparse-file.ts";
import { temporaryDirectory } from "@forkd/test-support";

const run = promisify(execFile);
const mib = 1 << 20;
const asRoot = { skip: process.getuid?.() !== 0 };

/** 64 MiB with data in three places, the last of them at the very end. */
async function sparseFile(path: string): Promise<string> {
  await using file = await open(path, "wx");
  await file.truncate(64 * mib);
  await file.write(Buffer.alloc(mib, 1), 0, mib, 4 * mib);
  await file.write(Buffer.alloc(4096, 2), 0, 4096, 32 * mib);
  await file.write(Buffer.from("end"), 0, 3, 64 * mib - 3);
  await file.sync();
  return path;
}

/** A mounted file system for the time of `work`. */
async function mounted(args: readonly string[], work: (dir: string) => Promise<void>): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-base-mount-"));
  try {
    await run("mount", [...args, dir]);
    try {
      await work(dir);
    } finally {
      await run("umount", [dir]);
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

async function sameContent(a: string, b: string): Promise<void> {
  await run("cmp", [a, b]);
}

test("copySparse() copies data and keeps holes", async (t) => {
  const dir = await temporaryDirectory(t);
  const from = await sparseFile(join(dir, "a file"));
  await chmod(from, 0o640);
  const to = join(dir, "copy");
  const { reflinked, copiedBytes } = await copySparse(from, to);
  await sameContent(from, to);
  const copy = await stat(to);
  assert.equal(copy.size, 64 * mib);
  assert.ok(copy.blocks * 512 < 2 * mib, `${copy.blocks} blocks`);
  assert.equal(copy.mode & 0o777, 0o640);
  if (!reflinked) assert.equal(copiedBytes, mib + 8192);
});

test("copySparse() copies files without data, without bytes, and of odd length", async (t) => {
  const dir = await temporaryDirectory(t);
  for (const [name, bytes, content] of [
    ["hole", 3 * mib + 5, ""],
    ["empty", 0, ""],
    ["odd", 5, "abcde"],
  ] as const) {
    const from = join(dir, name);
    await writeFile(from, content);
    await truncate(from, bytes);
    const { copiedBytes } = await copySparse(from, `${from}2`);
    assert.equal(copiedBytes, content.length);
    await sameContent(from, `${from}2`);
  }
});

test("copySparse() copies from one file system to another", asRoot, async (t) => {
  const dir = await temporaryDirectory(t);
  const from = await sparseFile(join(dir, "file"));
  await mounted(["-t", "tmpfs", "-o", "size=4m", "tmpfs"], async (memory) => {
    assert.deepEqual(await copySparse(from, join(memory, "copy")), {
      reflinked: false,
      copiedBytes: mib + 8192,
    });
    await sameContent(from, join(memory, "copy"));
  });
});

test("copySparse() does not overwrite, and leaves no file when it fails", async (t) => {
  const dir = await temporaryDirectory(t);
  const from = await sparseFile(join(dir, "file"));
  await writeFile(join(dir, "mine"), "mine");
  await assert.rejects(copySparse(from, join(dir, "mine")), (error) => isErrno(error, "EEXIST"));
  assert.equal(await readFile(join(dir, "mine"), "utf8"), "mine");
  await assert.rejects(
    copySparse(join(dir, "none"), join(dir, "copy")),
    (error) => isErrno(error, "ENOENT") && error instanceof Error && /none/.test(error.message),
  );
  await mkdir(join(dir, "folder"));
  await assert.rejects(copySparse(join(dir, "folder"), join(dir, "copy")), (error) =>
    isErrno(error, "EINVAL"),
  );
  assert.ok(!existsSync(join(dir, "copy")));
});

test("copySparse() fails with ENOSPC on a full disk and leaves no file", asRoot, async (t) => {
  const dir = await temporaryDirectory(t);
  const from = await sparseFile(join(dir, "file"));
  await mounted(["-t", "tmpfs", "-o", "size=512k", "tmpfs"], async (small) => {
    await assert.rejects(copySparse(from, join(small, "copy")), (error) => isErrno(error, "ENOSPC"));
    assert.deepEqual(await readdir(small), []);
  });
});

test("copySparse() shares blocks where the file system can", asRoot, async (t) => {
  const image = join(await temporaryDirectory(t), "image");
  await writeFile(image, "");
  await truncate(image, 320 * mib);
  await run("mkfs.xfs", ["-q", "-m", "reflink=1", image], {
    env: { ...process.env, PATH: `${process.env["PATH"]}:/usr/sbin:/sbin` },
  });
  await mounted(["-o", "loop", image], async (xfs) => {
    const from = await sparseFile(join(xfs, "file"));
    assert.deepEqual(await copySparse(from, join(xfs, "copy")), { reflinked: true, copiedBytes: 0 });
    await sameContent(from, join(xfs, "copy"));
    assert.deepEqual(await dataRanges(join(xfs, "copy")), await dataRanges(from));
  });
});

test("dataRanges() lists the parts that are not holes", async (t) => {
  const dir = await temporaryDirectory(t);
  assert.deepEqual(await dataRanges(await sparseFile(join(dir, "file"))), [
    { start: 4 * mib, end: 5 * mib },
    { start: 32 * mib, end: 32 * mib + 4096 },
    { start: 64 * mib - 4096, end: 64 * mib },
  ]);
  await writeFile(join(dir, "empty"), "");
  assert.deepEqual(await dataRanges(join(dir, "empty")), []);
  await truncate(join(dir, "empty"), mib);
  assert.deepEqual(await dataRanges(join(dir, "empty")), []);
  await writeFile(join(dir, "short"), "abc");
  assert.deepEqual(await dataRanges(join(dir, "short")), [{ start: 0, end: 3 }]);
  await assert.rejects(dataRanges(join(dir, "none")), (error) => isErrno(error, "ENOENT"));
});

test("copySparse() reports a helper that was killed, without its command line", async (t) => {
  const dir = await temporaryDirectory(t);
  // Opening a FIFO waits for a writer, so the helper is still there to be killed.
  await run("mkfifo", [join(dir, "from")]);
  const copying = copySparse(join(dir, "from"), join(dir, "to"));
  copying.catch(() => undefined);
  const children = await readFile(`/proc/${process.pid}/task/${process.pid}/children`, "utf8");
  for (const pid of children.trim().split(" ")) process.kill(Number(pid), "SIGKILL");
  await assert.rejects(copying, { code: "EHELPER", message: /: forkd-pages failed: killed by SIGKILL$/ });
});
