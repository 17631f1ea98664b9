import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { connectCodeOf } from "../../src/connect/codes.ts";

test("connectCodeOf() says what an error means to clients", () => {
  const refused = (errno: string) => new AppError("guest_refused", "no", { details: { errno } });
  const cases: [AppError, string][] = [
    [new AppError("file_not_found", "no"), "not_found"],
    [new AppError("exec_not_found", "no"), "not_found"],
    [new AppError("sandbox_dead", "no"), "unavailable"],
    [new AppError("unsupported", "no"), "unimplemented"],
    [new AppError("disk_full", "no"), "internal"],
    [refused("EACCES"), "permission_denied"],
    [refused("ENOTDIR"), "invalid_argument"],
    [refused("EIO"), "internal"],
    [new AppError("guest_refused", "no"), "internal"],
  ];
  for (const [error, code] of cases) assert.equal(connectCodeOf(error), code);
});
