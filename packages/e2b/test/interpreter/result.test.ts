import assert from "node:assert/strict";
import { test } from "node:test";
import type { EvalResult } from "@forkd/contract";
import { languageOf } from "../../src/interpreter/contexts.ts";
import { errorLine, resultLine } from "../../src/interpreter/result.ts";

test("resultLine() keeps every form and strips the quotes of a string", () => {
  assert.deepEqual(
    resultLine({ is_main_result: true, text: "'it'", html: "<b>", png: "aGk=", truncated_parts: ["pdf"] }),
    { type: "result", is_main_result: true, text: "it", html: "<b>", png: "aGk=" },
  );
  const textOf = (text: string) => (resultLine({ is_main_result: true, text }) as { text: string }).text;
  assert.deepEqual(['"a"', "'", "'a\"", "a'", "''", "4"].map(textOf), ["a", "'", "'a\"", "a'", "", "4"]);
});

const failed = { error: "ValueError: a: b", traceback: "Traceback …", error_info: null } as EvalResult;

test("errorLine() always has name, value and traceback", () => {
  assert.equal(errorLine({ ...failed, error: null }), undefined);
  const line = { type: "error", name: "ValueError", value: "a: b", traceback: "Traceback …" };
  assert.deepEqual(errorLine(failed), line);
  assert.deepEqual(errorLine({ ...failed, error: "KeyboardInterrupt", traceback: null }), {
    type: "error",
    name: "KeyboardInterrupt",
    value: "",
    traceback: "KeyboardInterrupt",
  });
  const info = { name: "mod.Error", value: "v", frames: [] };
  assert.deepEqual(errorLine({ ...failed, error_info: info }), { ...line, name: "mod.Error", value: "v" });
});

test("languageOf() knows E2B's names and refuses others", () => {
  assert.deepEqual([undefined, "python", "JavaScript", "js"].map(languageOf), [
    "python",
    "python",
    "node",
    "node",
  ]);
  for (const name of ["r", "java", "typescript", "constructor"])
    assert.throws(() => languageOf(name), /python, javascript and bash/);
});
