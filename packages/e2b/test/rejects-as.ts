import assert from "node:assert/strict";
import { AppError, type ErrorCode } from "@forkd/contract";

export function rejectsAs(code: ErrorCode, message: RegExp, work: () => unknown): void {
  assert.throws(work, (error: unknown) => {
    assert.ok(error instanceof AppError, String(error));
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  });
}
