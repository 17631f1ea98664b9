import assert from "node:assert/strict";
import { test } from "node:test";
import { checkJson, checkJsonInTurns, findJsonFault, JsonText, stringifyJson } from "../src/index.ts";

const bounds = { maxDepth: 4, maxValues: 6 };
const faultOf = (text: string | Buffer) => checkJson(Buffer.from(text), bounds);

test("checkJson() accepts JSON", () => {
  for (const text of [
    '""',
    "0",
    "-1.5e+3",
    " [1, true ,null]\n",
    '{"a": {"b": []}}',
    '"\\u00e9\\n é"',
    "[{},[]]",
  ])
    assert.equal(faultOf(text), undefined, text);
});

test("checkJson() finds text that is not JSON", () => {
  for (const text of [
    "",
    " ",
    "[",
    "[1,]",
    "01",
    "1.",
    "-",
    "1e",
    "+1",
    "tru",
    "nul",
    "{1:2}",
    '{"a"}',
    '{"a":1,}',
  ])
    assert.equal(faultOf(text), "invalid", text);
  for (const text of [
    '"',
    '"\\x"',
    '"\\u12g4"',
    '"\n"',
    "1 2",
    "[1}",
    "]",
    '1,"stdout":"forged"',
    "{} {}",
    "NaN",
  ])
    assert.equal(faultOf(text), "invalid", text);
  assert.equal(faultOf(Buffer.from([0x22, 0xff, 0x22])), "invalid");
});

test("checkJsonInTurns() finds the same as checkJson(), in several turns of the event loop", async () => {
  const numbers = `[${"1,".repeat(500_000)}1]`;
  const cases = [
    numbers,
    `${numbers}]`,
    numbers.slice(0, -1),
    `"${"x".repeat(500_000)}"`,
    "1",
    "",
    "[".repeat(500_000),
  ];
  for (const text of cases) {
    let turns = 0;
    let isOver = false;
    const count = (): void => {
      turns++;
      if (!isOver) setImmediate(count);
    };
    setImmediate(count);
    const wide = { maxDepth: 4 };
    assert.equal(await checkJsonInTurns(Buffer.from(text), wide), checkJson(Buffer.from(text), wide));
    isOver = true;
    if (text === numbers) assert.ok(turns >= 10, `${turns} turns`);
  }
});

test("checkJson() stops at a bound, whatever follows", () => {
  assert.equal(faultOf("[[[[1]]]]"), undefined);
  assert.equal(faultOf("[".repeat(1_000_000)), "too deep");
  assert.equal(faultOf("[1,2,3,4,5]"), undefined);
  assert.equal(faultOf("[1,2,3,4,5,6"), "too many values");
});

test("checkJson() agrees with JSON.parse() on mutated text", () => {
  const alphabet = Array.from('[]{}:,"\\u09-+.eEtrufalsn \né');
  let state = 7;
  const below = (limit: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * limit);
  };
  const seeds = ["[1,2]", '{"a":1}', '"\\u00e9"', "-1.5e+3", "[true,null]", '{"a":[{}]}', ""];
  for (let round = 0; round < 20_000; round++) {
    let text = seeds[round % seeds.length] ?? "";
    for (let edits = 1 + below(3); edits > 0; edits--) {
      const at = below(text.length + 1);
      text = text.slice(0, at) + (alphabet[below(alphabet.length)] ?? "") + text.slice(at + below(2));
    }
    let isJson = true;
    try {
      JSON.parse(text);
    } catch {
      isJson = false;
    }
    assert.equal(checkJson(Buffer.from(text), { maxDepth: 64 }) === undefined, isJson, JSON.stringify(text));
  }
});

test("stringifyJson() copies the text of a JsonText", () => {
  const value = { a: new JsonText("[1, 2 ]"), b: ["x", new JsonText('{"k" :null}')], c: 3 };
  assert.equal(stringifyJson(value), '{"a":[1, 2 ],"b":["x",{"k" :null}],"c":3}');
  assert.equal(stringifyJson({ plain: ["$&", 1] }), '{"plain":["$&",1]}');
  assert.equal(stringifyJson(new JsonText("7")), "7");
});

test("JSON.stringify() of a JsonText writes the same value", () => {
  assert.equal(JSON.stringify({ a: new JsonText("[1, 2 ]") }), '{"a":[1,2]}');
  assert.deepEqual(new JsonText('{"k":[]}').parse(), { k: [] });
});

test("findJsonFault() finds the token that is wrong and what may be there", () => {
  const cases: [string, number, RegExp][] = [
    ["", 0, /^a value$/],
    ['{"a" 1}', 5, /":"/],
    ['{"a": 1,\n}', 9, /^a name in double quotes$/],
    ['{"a": 1 "b": 2}', 8, /comma or the end/],
    ["{a: 1}", 1, /name in double quotes or "}"/],
    ['["x\ny"]', 1, /complete string/],
    ['{"é": nope}', 7, /^a value$/],
    ["{} {}", 3, /comma or the end/],
  ];
  for (const [text, at, expected] of cases) {
    const fault = findJsonFault(Buffer.from(text));
    assert.equal(fault?.at, at, text);
    assert.match(fault?.expected ?? "", expected, text);
  }
  assert.equal(findJsonFault(Buffer.from('{"a": [1]}')), undefined);
});
