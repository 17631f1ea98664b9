import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger, redact } from "../src/logger.ts";

test("redact() hides the values of secret-looking keys at any depth and leaves the rest", () => {
  const input = {
    tag: "py",
    token: "t",
    nested: [{ API_KEY: "k", apikey: "k", Authorization: "Bearer x" }, { userPassword: "p" }],
    env: { HOME: "/root" },
    environment: "kept",
    client_secret: { a: 1 },
    count: 3,
    none: null,
    missing: undefined,
  };
  const copy = structuredClone(input);
  assert.deepEqual(redact(input), {
    tag: "py",
    token: "[redacted]",
    nested: [
      { API_KEY: "[redacted]", apikey: "[redacted]", Authorization: "[redacted]" },
      { userPassword: "[redacted]" },
    ],
    env: "[redacted]",
    environment: "kept",
    client_secret: "[redacted]",
    count: 3,
    none: null,
    missing: undefined,
  });
  assert.deepEqual(input, copy, "the input is not changed");
});

test("redact() returns values that are not objects unchanged", () => {
  for (const value of ["token", 1, true, null, undefined]) assert.equal(redact(value), value);
});

test("createLogger() writes one JSON line per event, without secrets, with errors and child fields", () => {
  const lines: string[] = [];
  const log = createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(line) },
  });
  log.debug({ event: "hidden" });
  log
    .child({ sandbox: "sb-1" })
    .warn({ event: "fork", token: "t", env: { A: "1" }, request: { password: "p" }, err: new Error("why") });
  assert.equal(lines.length, 1);
  const line = JSON.parse(lines[0] ?? "");
  assert.equal(line.level, "warn");
  assert.equal(line.event, "fork");
  assert.equal(line.sandbox, "sb-1");
  assert.ok(!Number.isNaN(Date.parse(line.time)));
  assert.deepEqual(
    [line.token, line.env, line.request],
    ["[redacted]", "[redacted]", { password: "[redacted]" }],
  );
  assert.equal(line.err.message, "why");
});

test("createLogger() writes the message of an error once, and its cause beside it", () => {
  const lines: string[] = [];
  const log = createLogger({
    level: "info",
    destination: { write: (line: string) => void lines.push(line) },
  });
  const cause = new Error("EADDRINUSE");
  log.error({ err: new Error("Cannot listen: EADDRINUSE", { cause }) });
  const line = JSON.parse(lines[0] ?? "");
  assert.deepEqual([line.err.message, line.err.cause.message], ["Cannot listen: EADDRINUSE", "EADDRINUSE"]);
});
