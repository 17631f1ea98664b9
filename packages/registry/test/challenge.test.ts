import assert from "node:assert/strict";
import { test } from "node:test";
import { parseChallenges } from "../src/auth/challenge.ts";

test("parseChallenges() reads the challenge of a token server", () => {
  assert.deepEqual(
    parseChallenges(
      'Bearer realm="https://auth.example.com/token",service="r.example.com",scope="repository:a/b:pull,push"',
    ),
    [
      {
        scheme: "bearer",
        parameters: {
          realm: "https://auth.example.com/token",
          service: "r.example.com",
          scope: "repository:a/b:pull,push",
        },
      },
    ],
  );
});

test("parseChallenges() reads several challenges, escapes and unquoted values", () => {
  assert.deepEqual(
    parseChallenges('Basic realm="say \\"hi\\", please", Bearer realm=x, error=invalid_token'),
    [
      { scheme: "basic", parameters: { realm: 'say "hi", please' } },
      { scheme: "bearer", parameters: { realm: "x", error: "invalid_token" } },
    ],
  );
  assert.deepEqual(parseChallenges("Negotiate, BASIC"), [
    { scheme: "negotiate", parameters: {} },
    { scheme: "basic", parameters: {} },
  ]);
});

test("parseChallenges() stops at faults and at headers that are too long", () => {
  assert.deepEqual(parseChallenges(""), []);
  assert.deepEqual(parseChallenges('"quoted"'), []);
  assert.deepEqual(parseChallenges(`Bearer realm="${"x".repeat(9000)}"`), []);
  assert.deepEqual(parseChallenges('Bearer realm="open'), [
    { scheme: "bearer", parameters: {} },
    { scheme: "realm", parameters: {} },
  ]);
});
