import assert from "node:assert/strict";
import { test } from "node:test";
import { SingleFlight } from "../src/single-flight.ts";

/** Work that ends when the test says so, or when its signal fires. */
function controlled() {
  const starts: AbortSignal[] = [];
  let finish: (value: string) => void = () => undefined;
  const work = (signal: AbortSignal): Promise<string> => {
    starts.push(signal);
    return new Promise((resolve, reject) => {
      finish = resolve;
      signal.addEventListener("abort", () => reject(new Error("stopped")));
    });
  };
  return { starts, work, finish: (value: string) => finish(value) };
}

test("run() does the work once for all waiting callers, and again afterwards", async () => {
  const shared = new SingleFlight<string>();
  const { starts, work, finish } = controlled();
  const all = [1, 2, 3].map(() => shared.run("a", work, new AbortController().signal));
  finish("done");
  assert.deepEqual(await Promise.all(all), ["done", "done", "done"]);
  assert.equal(starts.length, 1);
  const again = shared.run("a", work);
  finish("again");
  assert.equal(await again, "again");
});

test("run() rejects for all waiting callers when the work fails", async () => {
  const shared = new SingleFlight<string>();
  const fail = () => Promise.reject(new Error("no luck"));
  const results = await Promise.allSettled([shared.run("a", fail), shared.run("a", fail)]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ["rejected", "rejected"],
  );
});

test("run() keeps the work running for the other callers when one gives up", async () => {
  const shared = new SingleFlight<string>();
  const { starts, work, finish } = controlled();
  const controller = new AbortController();
  const gone = shared.run("a", work, controller.signal);
  const stays = shared.run("a", work);
  controller.abort();
  await assert.rejects(gone, { name: "AbortError" });
  assert.equal(starts[0]?.aborted, false);
  finish("done");
  assert.equal(await stays, "done");
});

test("run() stops the work when the last caller gives up, and the next call starts it again", async () => {
  const shared = new SingleFlight<string>();
  const { starts, work, finish } = controlled();
  const controllers = [new AbortController(), new AbortController()];
  const gone = controllers.map(({ signal }) => shared.run("a", work, signal));
  for (const controller of controllers) controller.abort();
  for (const each of gone) await assert.rejects(each, { name: "AbortError" });
  assert.equal(starts[0]?.aborted, true);
  const next = shared.run("a", work);
  finish("done");
  assert.equal(await next, "done");
  assert.equal(starts.length, 2);
  await assert.rejects(shared.run("a", work, AbortSignal.abort()), { name: "AbortError" });
});
