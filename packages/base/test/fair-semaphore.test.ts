import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { FairSemaphore, type Call } from "../src/fair-semaphore.ts";
import { settled } from "@forkd/test-support";

/** Takes a place for a name as often as asked; `begun` has the names in the order in which they got one. */
function crowd(places: number) {
  const turns = new FairSemaphore(places);
  const begun: string[] = [];
  const held: Disposable[] = [];
  const ask = (name: string, call: Call, times = 1) =>
    Promise.allSettled(
      Array.from({ length: times }, async () => {
        const place = await turns.take(call);
        begun.push(name);
        held.push(place);
      }),
    );
  /** Gives one place back, the one that was got first. */
  const next = async () => {
    held.shift()?.[Symbol.dispose]();
    await settled();
  };
  return { turns, begun, ask, next };
}

test("take() serves callers in turns, and the calls of one caller in turns, each in order of request", async () => {
  const { turns, begun, ask, next } = crowd(1);
  void ask("a1", { caller: "a" }, 4);
  void ask("a2", { caller: "a" }, 2);
  void ask("b", { caller: "b" }, 3);
  await settled();
  assert.equal(turns.waiting, 8);
  for (let count = 0; count < 9; count++) await next();
  assert.deepEqual(begun, ["a1", "a1", "b", "a2", "b", "a1", "b", "a2", "a1"]);
  assert.equal(turns.waiting, 0);
});

test("take() gives out as many permits as there are, and a permit released twice counts once", async () => {
  const { turns, begun, ask } = crowd(2);
  const first = await turns.take({ caller: "a" });
  await turns.take({ caller: "a" });
  void ask("b", { caller: "b" }, 2);
  for (let count = 0; count < 2; count++) first[Symbol.dispose]();
  await settled();
  assert.deepEqual([begun, turns.waiting], [["b"], 1]);
});

test("take() rejects when the call is aborted, keeps permits already taken, and removes its listeners", async () => {
  const { turns, begun, ask, next } = crowd(1);
  const abort = new AbortController();
  const call = { caller: "a", signal: abort.signal };
  const asked = ask("a", call, 1000);
  void ask("b", { caller: "b" });
  await settled();
  assert.equal(getEventListeners(abort.signal, "abort").length, 1, "one, however many wait");
  abort.abort(new Error("gone"));
  const outcomes = await Promise.race([asked, settled().then(() => [])]);
  assert.equal(outcomes.filter(({ status }) => status === "rejected").length, 999);
  assert.deepEqual([begun, turns.waiting], [["a"], 1]);
  await assert.rejects(turns.take(call), /gone/);
  await next();
  assert.deepEqual(begun, ["a", "b"]);
  await next();
  await turns.take({ caller: "c" });
  assert.equal(getEventListeners(abort.signal, "abort").length, 0);
});
