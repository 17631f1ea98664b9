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
  assert.equal(failure.body.error, "Unknown option '-x'");
  assert.match(failure.remedy ?? "", /`--`/);
});

test("describeFailure() treats any other error as internal", () => {
  assert.equal(describeFailure(new TypeError("bug"), undefined).exitCode, 1);
});

test("describeFailure() names the help of the subcommand, and keeps the request id beside the details", () => {
  const error = new CommanderError(1, "commander.invalidArgument", "error: option '--expires' is invalid");
  assert.equal(describeFailure(error, "keys create").remedy, "See `forkd keys create --help`.");
  const failed = new AppError("not_found", "no", { details: { a: 1, request_id: "req-1" } });
  const { body } = describeFailure(failed, "ls");
  assert.deepEqual([body.request_id, body.details], ["req-1", { a: 1 }]);
});
