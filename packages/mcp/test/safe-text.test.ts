import assert from "node:assert/strict";
import { test } from "node:test";
import { safeText, safeValue } from "../src/results/safe-text.ts";

test("safeText() removes what terminals obey and shows what is invisible", () => {
  const cases: [given: string | Uint8Array, expected: string, replaced: number][] = [
    ["plain ünïcode 👩‍💻 ok\n\ttab", "plain ünïcode 👩‍💻 ok\n\ttab", 0],
    ["\u001b[1;31mred\u001b[0m", "red", 2],
    ["\u001b]8;;http://x\u0007link\u001b]8;;\u001b\\", "link", 2],
    ["\u001b]0;never closed", "", 1],
    ["a\u009b31mb", "ab", 1],
    ["\u001bPdata\u001b\\x", "x", 1],
    ["\u001b(Bx\u001bcy\u001b", "xy", 3],
    ["a\0b\u0008c\u007fd", "a␀b␈c␡d", 3],
    ["50%\r100%\r\nend\r\n", "50%\n100%\nend\n", 0],
    ["a\u202eb\u2066c\u200fd", "a\\u{202e}b\\u{2066}c\\u{200f}d", 3],
    ["\ufeffx\u200by\u2028z", "\\u{feff}x\\u{200b}y\\u{2028}z", 3],
    // Tag characters carry text that only a model reads.
    ["hi\u{e0068}\u{e0069}", "hi\\u{e0068}\\u{e0069}", 2],
    ["\ud800x", "\ufffdx", 1],
    [Uint8Array.of(0x61, 0xff, 0xfe, 0x62), "a\ufffd\ufffdb", 2],
    [Uint8Array.of(0xe2, 0x82), "\ufffd", 1],
  ];
  for (const [given, expected, replaced] of cases)
    assert.deepEqual(safeText(given), { text: expected, replaced }, JSON.stringify(given));
});

test("safeText() takes linear time for escapes that are never closed", () => {
  const hostile = "\u001b]".repeat(200_000) + "\u001b[".repeat(200_000) + "\r".repeat(200_000);
  assert.equal(safeText(hostile).text.replaceAll("\n", "").length <= 1, true);
});

test("safeValue() makes names and texts of a JSON value safe", () => {
  assert.deepEqual(safeValue({ a: ["\u001b[1mx", 1, null, { "k\0": "v\u202e" }] }), {
    a: ["x", 1, null, { "k␀": "v\\u{202e}" }],
  });
});
