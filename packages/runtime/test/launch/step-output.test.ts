import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { commandName, outputTail, startFailure, stepFailure } from "../../src/launch/step-output.ts";

test("outputTail() removes escape sequences and control characters", () => {
  assert.equal(
    outputTail("\u001b[31mred\u001b[0m\u0007\n\u001b]0;title\u0007next\tcell\r\n"),
    "red\nnext  cell",
  );
  assert.equal(outputTail("10%\r50%\r100%\n\n\n"), "100%");
  assert.equal(outputTail(""), "");
});

test("outputTail() keeps the last 20 lines and 4000 characters", () => {
  const lines = Array.from({ length: 100 }, (_, nth) => `line ${nth}`);
  assert.deepEqual(outputTail(lines.join("\n")).split("\n"), lines.slice(-20));
  assert.equal(outputTail("x".repeat(100_000)).length, 4000);
});

test("stepFailure() ends its message with the last line, which it shortens", () => {
  const error = stepFailure("It failed", `first\n${"x".repeat(1000)}\n`, { details: { a: 1 } });
  assert.equal(error.code, "invalid_recipe");
  assert.equal(error.message.length, "It failed; last output: ".length + 300);
  assert.deepEqual(error.details, { a: 1, output: `first\n${"x".repeat(1000)}` });
  assert.equal(stepFailure("It failed", "").message, "It failed");
});

test("commandName() is one line and short", () => {
  assert.equal(commandName(["sh", "-c", "a\nb"]), "sh -c a b");
  assert.equal(commandName(["x".repeat(1000)]).length, 120);
});

test("startFailure() leaves errors alone that the recipe did not cause", () => {
  const silent = new AppError("agent_unreachable", "silence");
  assert.equal(startFailure(["a"], silent), silent);
  const refused = new AppError("guest_refused", "Cannot start", {
    details: { errno: "EACCES", text: "a: no" },
  });
  const error = startFailure(["a"], refused);
  assert.ok(error instanceof AppError);
  assert.deepEqual([error.code, error.message], ["invalid_recipe", 'Cannot start "a" in the parent: a: no']);
});
