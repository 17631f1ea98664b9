import assert from "node:assert/strict";
import { test } from "node:test";
import { ConsoleText } from "../../src/terminal/console-text.ts";

function shown(...chunks: (string | Buffer)[]): string {
  const text = new ConsoleText();
  return chunks.map((chunk) => text.push(Buffer.from(chunk))).join("") + text.end();
}

test("ConsoleText removes escape sequences and control characters", () => {
  assert.equal(shown("\u001b[31mred\u001b[0m\r\nnext\tcell\n"), "red\nnext\tcell\n");
  assert.doesNotMatch(
    shown("\u001b]52;c;ZXZpbA==\u0007 \u009b2J \u001bc \b\u202e\r x"),
    /[^\P{Cc}\n]|\p{Cf}/u,
  );
});

test("ConsoleText removes sequences that two chunks share", () => {
  const line = Buffer.from("a\u001b[1;31mé\u001b[0m\r\nb\n");
  for (let at = 0; at <= line.length; at++)
    assert.equal(shown(line.subarray(0, at), line.subarray(at)), "aé\nb\n", `cut at ${at}`);
});

test("ConsoleText prints an unfinished line at once", () => {
  assert.equal(new ConsoleText().push(Buffer.from("login: ")), "login: ");
});
