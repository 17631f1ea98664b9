import assert from "node:assert/strict";
import { test } from "node:test";
import { s } from "../src/schema.ts";

const schema = s.object({
  name: s
    .string()
    .min(1)
    .max(5)
    .regex(/^[a-z]*$/, "must be lower case"),
  count: s.int().min(1).max(9).default(3),
  ratio: s.number().optional(),
  kind: s.enum(["alpha", "beta"]).optional(),
  tags: s.array(s.string()).max(2).optional(),
  env: s.record(s.string()).optional(),
  nested: s.object({ deep: s.boolean() }).optional(),
});

test("check() fills in defaults and leaves out what is not given", () => {
  assert.deepEqual(schema.check({ name: "a" }, ""), { name: "a", count: 3 });
  assert.deepEqual(schema.check({ name: "a", count: 9, env: { X: "1" }, nested: { deep: true } }, ""), {
    name: "a",
    count: 9,
    env: { X: "1" },
    nested: { deep: true },
  });
});

test("check() names the field and the rule", () => {
  const cases: [given: unknown, field: string, message: RegExp][] = [
    [{}, "name", /is required/],
    ["x", "", /must be an object, not a string/],
    [{ name: 1 }, "name", /must be a string, not a number/],
    [{ name: "" }, "name", /must not be empty/],
    [{ name: "abcdef" }, "name", /at most 5 characters/],
    [{ name: "A" }, "name", /lower case/],
    [{ name: "a", count: 1.5 }, "count", /whole number/],
    [{ name: "a", count: 10 }, "count", /at most 9/],
    [{ name: "a", ratio: "1" }, "ratio", /a number, not a string/],
    [{ name: "a", ratio: Number.NaN }, "ratio", /a number/],
    [{ name: "a", kind: "alpah" }, "kind", /one of: alpha, beta/],
    [{ name: "a", tags: ["a", "b", "c"] }, "tags", /at most 2 entries/],
    [{ name: "a", tags: ["a", 2] }, "tags.1", /a string/],
    [{ name: "a", env: { X: null } }, "env.X", /a string, not null/],
    [{ name: "a", nested: { deep: 1 } }, "nested.deep", /true or false/],
    [{ name: "a", nested: { deep: true, more: 1 } }, "nested.more", /no such argument/],
    [{ name: "a", coutn: 1 }, "coutn", /no such argument; there are name, count/],
    [JSON.parse('{"name":"a","__proto__":{"x":1}}'), "__proto__", /no such argument/],
  ];
  for (const [given, field, message] of cases) {
    assert.throws(
      () => schema.check(given, ""),
      (error: { code: string; message: string; details: Record<string, unknown> }) => {
        assert.deepEqual([error.code, error.details["field"]], ["invalid_request", field], error.message);
        assert.match(error.message, message);
        return true;
      },
    );
  }
});

test("json says the same in JSON Schema", () => {
  assert.deepEqual(schema.json["required"], ["name"]);
  assert.deepEqual((schema.json["properties"] as Record<string, unknown>)["count"], {
    type: "integer",
    minimum: 1,
    maximum: 9,
    default: 3,
  });
  assert.equal(s.looseObject({}).json["additionalProperties"], true);
});
