import assert from "node:assert/strict";
import { test } from "node:test";
import { outputEvent } from "../../src/guest/output-event.ts";

test("outputEvent() gives text as UTF-8 and other bytes as base64", () => {
  const part = new Uint8Array(Buffer.from("xgrün")).subarray(1);
  assert.deepEqual(outputEvent(1, 7, part), { type: "stdout", offset: 7, data: "grün", encoding: "utf8" });
  const half = Buffer.from("ü").subarray(0, 1);
  assert.deepEqual(outputEvent(2, 0, half), { type: "stderr", offset: 0, data: "ww==", encoding: "base64" });
});
