import assert from "node:assert/strict";
import { test } from "node:test";
import { outputMatcher } from "../src/results/match.ts";

const push = (matcher: ReturnType<typeof outputMatcher>, text: string) => matcher.push(Buffer.from(text));

test("outputMatcher() finds a text that arrives in pieces, between escapes, and inside a character", () => {
  const matcher = outputMatcher({ text: "réady" });
  assert.equal(push(matcher, "not r"), undefined);
  assert.equal(matcher.push(Buffer.from([0xc3])), undefined);
  assert.equal(matcher.push(Buffer.from([0xa9])), undefined);
  assert.equal(push(matcher, "a\u001b[1mdy"), "réady");
  assert.equal(matcher.end(), "not réady");
});

test("outputMatcher() matches a pattern per line and returns the text", () => {
  const matcher = outputMatcher({ pattern: "^port (\\d+)$" });
  assert.equal(push(matcher, "starting\nport 8"), "port 8");
  assert.throws(() => outputMatcher({ pattern: "[" }), { code: "invalid_request" });
});

test("outputMatcher() stops a search that takes exponential time", () => {
  const matcher = outputMatcher({ pattern: "^(a+)+$" });
  assert.throws(() => push(matcher, `${"a".repeat(40)}b`), /stopped after/);
});

test("outputMatcher() keeps a bounded part of the output", () => {
  const matcher = outputMatcher({ text: "start" });
  push(matcher, "star");
  push(matcher, "x".repeat(100_000));
  assert.equal(push(matcher, "t"), undefined);
});
