import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { deadlineSignal } from "../src/wire/deadline-signal.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

test("deadlineSignal() fires in time although the garbage collector runs", { timeout: 60_000 }, async () => {
  const outer = new AbortController();
  const { signal } = deadlineSignal(50, outer.signal);
  const fired = once(signal, "abort");
  collectGarbage();
  await fired;
});

test("deadlineSignal() says whether the time was up or the outer signal fired", () => {
  const outer = new AbortController();
  const reason = new Error("interrupted");
  using following = deadlineSignal(60_000, outer.signal);
  outer.abort(reason);
  assert.equal(following.signal.reason, reason);
  assert.equal(following.isLate, false);
  using late = deadlineSignal(60_000, outer.signal);
  assert.ok(late.signal.aborted);
});

test("deadlineSignal() leaves no timer when it is disposed", () => {
  const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  deadlineSignal(60_000, new AbortController().signal)[Symbol.dispose]();
  assert.equal(timers(), before);
});
