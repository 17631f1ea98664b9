import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

/** A directory that is removed after the test. */
export async function temporaryDirectory(t: Pick<TestContext, "after">): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-test-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}
