import assert from "node:assert/strict";
import { test } from "node:test";
import { Mutex } from "../src/mutex.ts";
import { mapPool, Semaphore } from "../src/pool.ts";
import { gate, settled } from "@forkd/test-support";

test("Semaphore runs as many at once as it has permits, and the others in order", async () => {
  const semaphore = new Semaphore(2);
  const gates = [gate(), gate(), gate(), gate()];
  const begun: number[] = [];
  const all = gates.map(({ opened }, index) =>
    semaphore.run(async () => {
      begun.push(index);
      await opened;
      return index;
    }),
  );
  await settled();
  assert.deepEqual(begun, [0, 1]);
  assert.equal(semaphore.waiting, 2);
  gates[1]?.open();
  await settled();
  assert.deepEqual(begun, [0, 1, 2]);
  for (const each of gates) each.open();
  assert.deepEqual(await Promise.all(all), [0, 1, 2, 3]);
  assert.equal(semaphore.waiting, 0);
});

test("Semaphore releases the permit when the work fails, with and without others waiting", async () => {
  const semaphore = new Semaphore(1);
  const fail = () => semaphore.run(() => Promise.reject(new Error("no luck")));
  await assert.rejects(fail(), /no luck/);
  const failing = fail();
  const waiting = semaphore.run(async () => "ran");
  await assert.rejects(failing, /no luck/);
  assert.equal(await waiting, "ran");
  const throwing = semaphore.run(() => {
    throw new Error("thrown");
  });
  await assert.rejects(throwing, /thrown/);
  assert.equal(await semaphore.run(async () => "free again"), "free again");
});

test("Semaphore does not let new work overtake work that was resumed", async () => {
  const semaphore = new Semaphore(1);
  let running = 0;
  let most = 0;
  const work = async (): Promise<void> => {
    most = Math.max(most, ++running);
    await settled();
    running--;
  };
  const first = semaphore.run(work);
  const second = semaphore.run(work);
  await first;
  await Promise.all([second, semaphore.run(work), semaphore.run(work)]);
  assert.equal(most, 1);
});

test("mapPool() keeps the order of the items and the bound", async () => {
  let running = 0;
  let most = 0;
  const results = await mapPool([30, 1, 20, 2, 10], 3, async (item, index) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, item));
    running--;
    return `${index}:${item}`;
  });
  assert.deepEqual(results, ["0:30", "1:1", "2:20", "3:2", "4:10"]);
  assert.equal(most, 3);
  assert.deepEqual(await mapPool([], 3, async () => assert.fail("nothing to do")), []);
});

test("Mutex runs one after the other, in order of request", async () => {
  const mutex = new Mutex();
  const log: string[] = [];
  const work = (name: string, ms: number) =>
    mutex.run(async () => {
      log.push(`${name} begins`);
      await new Promise((resolve) => setTimeout(resolve, ms));
      log.push(`${name} ends`);
      return name;
    });
  assert.deepEqual(await Promise.all([work("a", 15), work("b", 1), work("c", 5)]), ["a", "b", "c"]);
  assert.deepEqual(log, ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
});

test("Mutex continues after a failure, which only its caller sees", async () => {
  const mutex = new Mutex();
  const failing = mutex.run(() => Promise.reject(new Error("no luck")));
  const throwing = mutex.run(() => {
    throw new Error("thrown");
  });
  const next = mutex.run(async () => "next");
  await assert.rejects(failing, /no luck/);
  await assert.rejects(throwing, /thrown/);
  assert.equal(await next, "next");
});
