import assert from "node:assert/strict";
import { AppError, type ErrorCode } from "@forkd/contract";

/** Asserts that the promise rejects with this code and message; returns the error for more assertions. */
export async function rejectsWith(
  work: Promise<unknown>,
  code: ErrorCode,
  message?: RegExp,
): Promise<AppError> {
  const error = await work.then(
    () => assert.fail(`expected an error with code ${code}, but the promise resolved`),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof AppError, `expected an AppError with code ${code}, got ${String(error)}`);
  assert.equal(error.code, code, error.message);
  if (message) assert.match(error.message, message);
  return error;
}
