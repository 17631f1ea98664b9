/** Temporary directories and promises in tests. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

/** A directory that is gone after the test. */
export async function temporaryDirectory(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-base-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

export type Gate = { opened: Promise<void>; open: () => void };

export function gate(): Gate {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

/** Lets everything run that can run now. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
