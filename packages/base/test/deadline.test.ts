import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageChannel } from "node:worker_threads";
import { withDeadline, within } from "../src/deadline.ts";

const late = (): Error => new Error("too late");
const never = new Promise<never>(() => undefined);

test("withDeadline() resolves with the result of work that is in time", async () => {
  assert.equal(await withDeadline(Promise.resolve("done"), 1000, late), "done");
  await assert.rejects(withDeadline(Promise.reject(new Error("failed")), 1000, late), /failed/);
});

test("withDeadline() rejects with the caller's error when time is up", async () => {
  const startedAt = performance.now();
  await assert.rejects(withDeadline(never, 30, late), /too late/);
  assert.ok(performance.now() - startedAt >= 25);
});

test("within() does not count data as late that arrived while the process was blocked", async () => {
  for (const wait of [within, <T>(work: Promise<T>, ms: number) => withDeadline(work, ms, late)]) {
    const { port1, port2 } = new MessageChannel();
    const arrived = new Promise((resolve) => port1.once("message", resolve));
    const waiting = wait(arrived, 20);
    port2.postMessage("in time");
    const until = performance.now() + 40;
    while (performance.now() < until);
    assert.equal(await waiting, "in time");
    port1.close();
  }
});

test("withDeadline() gives the time again after the process was stopped, but ends", async () => {
  const stop = (): void => {
    const until = performance.now() + 1100;
    while (performance.now() < until);
  };
  // A peer that was stopped too answers when it runs again.
  const answer = new Promise((resolve) => setImmediate(() => setTimeout(() => resolve("alive"), 5)));
  const waiting = withDeadline(answer, 50, late);
  stop();
  assert.equal(await waiting, "alive");
  const silent = withDeadline(never, 20, late);
  stop();
  await assert.rejects(silent, /too late/);
});

test("withDeadline() leaves no timer and creates no error when the work is in time", async () => {
  const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
  const before = timers();
  await withDeadline(Promise.resolve(), 60_000, () => assert.fail("not late"));
  await assert.rejects(withDeadline(Promise.reject(new Error("failed")), 60_000, late));
  assert.equal(timers(), before);
});

test("withDeadline() handles the rejection of work that fails after the deadline", async () => {
  let fail: (error: Error) => void = () => undefined;
  const work = new Promise<never>((_, reject) => (fail = reject));
  await assert.rejects(withDeadline(work, 5, late), /too late/);
  // Unhandled, this would end the process.
  fail(new Error("nobody waits for me"));
  await new Promise((resolve) => setImmediate(resolve));
});

test("within() resolves with the result, or undefined when it is late, and passes failures on", async () => {
  assert.equal(await within(Promise.resolve(1), 60_000), 1);
  assert.equal(await within(new Promise(() => {}), 1), undefined);
  await assert.rejects(within(Promise.reject(new Error("no")), 60_000), /no/);
});
