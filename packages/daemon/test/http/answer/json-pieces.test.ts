import assert from "node:assert/strict";
import { test } from "node:test";
import { JsonText, stringifyJson } from "@forkd/base";
import { isOnePiece, jsonPieces } from "../../../src/http/answer/json-pieces.ts";

const long = 200_000;
const values: Readonly<Record<string, unknown>> = {
  "a text of control characters": { stdout: "\u0001".repeat(long), exit_code: 0, stderr: "é".repeat(long) },
  "surrogate pairs at every cut": { even: "😀".repeat(long), odd: `a${"😀".repeat(long)}` },
  "a lone surrogate": `${"x".repeat(16_383)}\ud800${"x".repeat(long)}`,
  "JSON of a guest": { result: { json: new JsonText(`[${"1, ".repeat(long)}1]`), none: undefined } },
  "a list in an object": { entries: Array.from({ length: 1234 }, (_, at) => ({ at })), last: null },
  "an empty object beside a long text": { empty: {}, text: "x".repeat(long) },
  "nothing but undefined beside a long list": [{ none: undefined }, ...Array.from({ length: 500 }, () => [])],
  "long texts in the entries of a list": {
    results: [{ png: "A".repeat(long) }, {}, { data: new JsonText(`[${"1, ".repeat(long)}1]`) }],
    many: Array.from({ length: 201 }, () => ({ html: "<b>".repeat(1000) })),
  },
  "small values": { a: 1, b: [true, null, "c"], d: new JsonText("[ ]") },
};

for (const [name, value] of Object.entries(values)) {
  test(`jsonPieces() gives the same JSON as stringifyJson(): ${name}`, () => {
    const pieces = [...jsonPieces(value)];
    assert.equal(pieces.join(""), stringifyJson(value));
    assert.equal(pieces.length === 1, isOnePiece(value));
    for (const piece of pieces)
      assert.ok(piece.length <= 6 * 65_536, `a piece of ${piece.length} characters`);
  });
}
