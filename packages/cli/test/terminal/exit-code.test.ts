import assert from "node:assert/strict";
import { test } from "node:test";
import { advice, AppError, errorCodes } from "@forkd/contract";
import { CommanderError } from "commander";
import { describeFailure, exitCodeOf } from "../../src/terminal/exit-code.ts";

test("exitCodeOf() follows the table of codes", () => {
  for (const [code, { exit }] of Object.entries(errorCodes)) assert.equal(exitCodeOf(code), exit, code);
  assert.equal(exitCodeOf("code_of_a_later_version"), 1);
});

test("describeFailure() prefers the remedy that an error brings", () => {
  const remedy = advice("Do this.");
  const own = describeFailure(new AppError("host_not_ready", "no", { remedy }), "ls");
  assert.deepEqual([own.exitCode, own.remedy], [8, "Do this."]);
  assert.match(describeFailure(new AppError("host_not_ready", "no"), "ls").remedy ?? "", /forkd doctor/);
  assert.equal(describeFailure(new AppError("guest_refused", "no"), "ls").remedy, undefined);
});

test("describeFailure() has the words of the command line in the body too", () => {
  const error = new AppError("sandbox_paused", "no", { remedy: { action: "resume", id: "sb-1" } });
  const { body, remedy } = describeFailure(error, "exec");
  const text = "Run `forkd resume sb-1` to resume it.";
  assert.equal(remedy, text);
  assert.deepEqual(body.remedy, { action: "resume", id: "sb-1", text });
});

test("describeFailure() makes mistakes in arguments exit 2", () => {
  const error = new CommanderError(1, "commander.unknownOption", "error: unknown option '-x'");
  const failure = describeFailure(error, "exec");
  assert.equal(failure.exitCode, 2);
  assert.equal(failure.body.error, "unknown option '-x'");
  assert.match(failure.remedy ?? "", /`--`/);
});

test("describeFailure() treats any other error as internal", () => {
  assert.equal(describeFailure(new TypeError("bug"), undefined).exitCode, 1);
});
