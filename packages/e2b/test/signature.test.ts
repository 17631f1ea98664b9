import assert from "node:assert/strict";
import { test } from "node:test";
import { signatureOf } from "../src/signature.ts";

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
const file = { path: "hello.txt", operation: "read", user: "user" } as const;

test("signatureOf() gives the signature that E2B's clients compute", () => {
  assert.equal(signatureOf(file, token), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
});

test("signatureOf() covers every part of the request", () => {
  const variants = [
    signatureOf(file, token),
    signatureOf({ ...file, path: "hello" }, token),
    signatureOf({ ...file, operation: "write" }, token),
    signatureOf({ ...file, user: "" }, token),
    signatureOf({ ...file, expiration: "1" }, token),
    signatureOf(file, "other"),
  ];
  assert.equal(new Set(variants).size, variants.length);
});
