import assert from "node:assert/strict";
import { test } from "node:test";
import { OpenWork } from "../src/open-work.ts";
import { rejectsWith } from "./support.ts";

test("OpenWork cancels running work, waits for it, and refuses new work", async () => {
  const work = new OpenWork("stop");
  const order: string[] = [];
  const running = work.whileOpen(undefined, async (signal) => {
    await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
    order.push("work has ended");
    signal.throwIfAborted();
  });
  const refused = rejectsWith(running, "daemon_stopping", /stopping/);
  assert.equal(work.isClosing, false);
  await work.end();
  order.push("end() has returned");
  await refused;
  assert.deepEqual(order, ["work has ended", "end() has returned"]);
  assert.ok(work.isClosing);
  await rejectsWith(
    work.whileOpen(undefined, async () => undefined),
    "daemon_stopping",
    /stopping/,
  );
});

test("OpenWork passes on the signal of the caller", async () => {
  const work = new OpenWork("stop");
  const caller = new AbortController();
  const running = work.whileOpen(caller.signal, async (signal) => {
    caller.abort(new Error("gone"));
    signal.throwIfAborted();
  });
  await assert.rejects(running, /gone/);
  assert.equal(work.isClosing, false);
});

test("OpenWork keeps commands running only for detached callers of sandboxes that are kept", () => {
  const work = new OpenWork("keep");
  assert.equal(work.keepsRunningWithoutCaller, false);
  work.detachCallers();
  assert.equal(work.keepsRunningWithoutCaller, true);
  work.onStop = "stop";
  assert.equal(work.keepsRunningWithoutCaller, false);
});
