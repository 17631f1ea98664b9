import assert from "node:assert/strict";
import { test } from "node:test";
import { apiKeyOf } from "../../src/e2b/api-key.ts";

test("apiKeyOf() reads a key in the form of E2B's clients, or as it is", () => {
  const hex = Buffer.from("fk_Secret-1").toString("hex");
  assert.equal(apiKeyOf({ "x-api-key": `e2b_${hex}` }), "fk_Secret-1");
  assert.equal(apiKeyOf({ "x-api-key": "fk_Secret-1" }), "fk_Secret-1");
  assert.equal(apiKeyOf({ "x-api-key": "e2b_abc" }), "e2b_abc");
  assert.equal(apiKeyOf({ "x-api-key": "" }), undefined);
  assert.equal(apiKeyOf({}), undefined);
});
