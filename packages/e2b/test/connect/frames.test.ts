import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { endFrame, messageFrame, onlyMessage } from "../../src/connect/frames.ts";

test("a frame has flags, a length in bytes and JSON", () => {
  const frame = messageFrame({ text: "ü" });
  const json = '{"text":"ü"}';
  assert.equal(frame[0], 0);
  assert.equal(frame.readUInt32BE(1), Buffer.byteLength(json));
  assert.equal(frame.subarray(5).toString(), json);
  assert.deepEqual(JSON.parse(onlyMessage(frame).toString()), { text: "ü" });
});

test("the last frame has its flag and the error, if there is one", () => {
  assert.deepEqual([...endFrame()], [2, 0, 0, 0, 2, ...Buffer.from("{}")]);
  const failed = endFrame({ code: "not_found", message: "no" });
  assert.equal(failed[0], 2);
  assert.deepEqual(JSON.parse(failed.subarray(5).toString()), {
    error: { code: "not_found", message: "no" },
  });
});

test("onlyMessage() refuses bodies that are not exactly one plain message", async () => {
  const frame = messageFrame({});
  const bad: [Buffer, RegExp][] = [
    [Buffer.alloc(0), /no message/],
    [frame.subarray(0, 4), /no message/],
    [frame.subarray(0, -1), /cut/],
    [Buffer.concat([frame, frame]), /more than one/],
    [Buffer.concat([Buffer.from([1]), frame.subarray(1)]), /compression/],
  ];
  for (const [body, message] of bad)
    await rejectsWith(
      Promise.resolve().then(() => onlyMessage(body)),
      "invalid_request",
      message,
    );
});
