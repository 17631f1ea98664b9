/** Temporary directories and errors in tests. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { AppError, type ErrorCode } from "@forkd/contract";

/** A directory that is deleted after the test. */
export async function temporaryDirectory(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-image-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

export async function rejectsWith(work: Promise<unknown>, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
}

/** Every name under a directory of the cache, temporary ones included. */
export async function namesIn(path: string): Promise<string[]> {
  const names: string[] = await readdir(path, { recursive: true }).catch(() => []);
  return names.sort();
}
