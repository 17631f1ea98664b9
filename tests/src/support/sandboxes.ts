/** Small steps that many tests take. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { AppError, Sandbox, type ErrorCode, type Forkd } from "@forkd/sdk";

/** Forks n and demands that every entry is a sandbox. */
export async function forkAll(
  forkd: Forkd,
  tag: string,
  n: number,
  options: object = {},
): Promise<Sandbox[]> {
  const entries = await forkd.fork(tag, { n, ...options });
  for (const entry of entries) if (!(entry instanceof Sandbox)) throw entry;
  assert.equal(entries.length, n);
  return entries as Sandbox[];
}

/** The promise rejects with that code; gives the error for closer looks. */
export async function rejectsWith(
  promise: Promise<unknown>,
  code: ErrorCode,
  message?: RegExp,
): Promise<AppError> {
  const error: unknown = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof AppError, `expected an AppError with code ${code}, got ${String(error)}`);
  assert.equal(error.code, code, error.message);
  if (message) assert.match(error.message, message);
  return error;
}

export function processExists(pid: number | undefined): boolean {
  return pid !== undefined && existsSync(`/proc/${pid}`);
}

/** Output of a command that must succeed, without the last newline. */
export async function sh(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout } = await sandbox.commands.run(["sh", "-c", script], { check: true });
  return stdout.replace(/\n$/, "");
}

/** Resolves when `check` holds; the thing waited for has no event on the wire. */
export async function eventually(
  what: string,
  check: () => boolean | Promise<boolean>,
  ms = 15_000,
): Promise<void> {
  const until = Date.now() + ms;
  while (!(await check())) {
    if (Date.now() > until) throw new Error(`It did not happen within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
