import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AppError,
  errorCodes,
  fromErrorBody,
  toAppError,
  toErrorBody,
  type ErrorCode,
} from "../src/wire/errors.ts";
import { errorBodySchema } from "../src/error-body.ts";

const codes = Object.keys(errorCodes) as ErrorCode[];

test("errorCodes has a status, an exit code and a retry flag for every code", () => {
  assert.ok(codes.length > 30);
  for (const code of codes) {
    const { status, exit, retryable } = errorCodes[code];
    assert.match(code, /^[a-z]+(_[a-z]+)*$/);
    assert.ok(status >= 400 && status < 600, `${code}: ${status}`);
    if (code === "deadline_exceeded") assert.equal(exit, 124, "as timeout(1)");
    else assert.ok(exit >= 1 && exit < 64, `${code}: ${exit}`);
    assert.equal(typeof retryable, "boolean");
  }
});

test("fromErrorBody() returns what toErrorBody() was given, for every code and through JSON", () => {
  for (const code of codes) {
    const error = new AppError(code, `Cannot do ${code}`, { details: { tag: "py", list: [1, null] } });
    const wire: unknown = JSON.parse(JSON.stringify(toErrorBody(error)));
    const back = fromErrorBody(errorBodySchema.parse(wire));
    assert.ok(back instanceof AppError);
    assert.deepEqual([back.code, back.message, back.details], [error.code, error.message, error.details]);
  }
});

test("toErrorBody() carries the request id, and fromErrorBody() keeps it in the details", () => {
  const body = toErrorBody(new AppError("not_found", "No", { details: { a: 1 } }), "req-1");
  assert.deepEqual(body, { error: "No", code: "not_found", details: { a: 1 }, request_id: "req-1" });
  assert.deepEqual(fromErrorBody(body).details, { a: 1, request_id: "req-1" });
  assert.deepEqual(toErrorBody(fromErrorBody(body)), body, "the id is beside the details again");
});

test("fromErrorBody() turns a code of another version into internal and keeps its name", () => {
  for (const code of ["from_the_future", "toString", "__proto__"]) {
    const error = fromErrorBody({ error: "What?", code, details: { a: 1 } });
    assert.equal(error.code, "internal");
    assert.deepEqual(error.details, { a: 1, unknown_code: code });
  }
});

test("toAppError() returns an AppError unchanged and turns a full disk into disk_full", () => {
  const error = new AppError("wrong_state", "No");
  assert.equal(toAppError(error), error);
  for (const code of ["ENOSPC", "EDQUOT"]) {
    const full = Object.assign(new Error("write failed"), { code });
    assert.equal(toAppError(full).code, "disk_full");
    assert.equal(toAppError(full).cause, full);
    assert.match(toAppError(full).message, /write failed$/);
    assert.deepEqual(toAppError(full).remedy, { action: "free_disk" });
  }
});

test("toAppError() turns any other thrown value into internal", () => {
  const table: [unknown, string][] = [
    [new TypeError("x is not a function"), "x is not a function"],
    [Object.assign(new Error("no file"), { code: "ENOENT" }), "no file"],
    ["text", "text"],
    [undefined, "undefined"],
    [{ code: "ENOSPC" }, "[object Object]"],
  ];
  for (const [thrown, message] of table) {
    const error = toAppError(thrown);
    assert.deepEqual([error.code, error.message, error.cause], ["internal", message, thrown]);
  }
});

test("errorBodySchema accepts a body without details and refuses one without a code", () => {
  assert.deepEqual(errorBodySchema.parse({ error: "e", code: "c" }).details, {});
  assert.equal(errorBodySchema.safeParse({ error: "e" }).success, false);
});

test("toAppError() reports a helper program that was killed as engine_failed", () => {
  const error = Object.assign(new Error("forkd-pages failed: killed by SIGKILL"), { code: "EHELPER" });
  assert.equal(toAppError(error).code, "engine_failed");
});
