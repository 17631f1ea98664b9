import assert from "node:assert/strict";
import { test } from "node:test";
import { AsyncQueue, Wakeup } from "../src/async-queue.ts";

async function readAll<T>(queue: AsyncQueue<T>): Promise<T[]> {
  const read: T[] = [];
  for await (const item of queue) read.push(item);
  return read;
}

test("AsyncQueue gives a waiting reader items in order, undefined included, and ends", async () => {
  const queue = new AsyncQueue<number | undefined>();
  const reading = readAll(queue);
  queue.push(1);
  queue.push(undefined);
  await new Promise((resolve) => setImmediate(resolve));
  queue.push(3);
  queue.end();
  queue.push(4);
  assert.deepEqual(await reading, [1, undefined, 3]);
});

test("AsyncQueue gives a late reader everything that was pushed before its end", async () => {
  const queue = new AsyncQueue<string>();
  for (const item of ["a", "b"]) queue.push(item);
  queue.end();
  queue.end();
  assert.deepEqual(await readAll(queue), ["a", "b"]);
  assert.deepEqual(await readAll(queue), []);
});

test("AsyncQueue throws its failure, undefined included, after the last item", async () => {
  for (const failure of [new Error("no more"), undefined]) {
    const queue = new AsyncQueue<number>();
    queue.push(1);
    queue.fail(failure);
    queue.end();
    const read: number[] = [];
    await assert.rejects(
      async () => {
        for await (const item of queue) read.push(item);
      },
      (error) => error === failure,
    );
    assert.deepEqual(read, [1]);
  }
});

test("AsyncQueue lets the producer see and take back what was not read", async () => {
  const queue = new AsyncQueue<{ text: string }>();
  assert.deepEqual([queue.newest], [undefined]);
  queue.push({ text: "a" });
  queue.push({ text: "b" });
  const { newest } = queue;
  assert.ok(newest);
  newest.text += "c";
  for await (const { text } of queue) {
    assert.equal(text, "a");
    break;
  }
  assert.deepEqual(queue.clear(), [{ text: "bc" }]);
  assert.deepEqual([queue.newest], [undefined]);
});

test("Wakeup keeps one notification for a consumer that is not waiting yet", async () => {
  const wakeup = new Wakeup();
  wakeup.notify();
  wakeup.notify();
  await wakeup.wait();
  let isWoken = false;
  const waiting = wakeup.wait().then(() => (isWoken = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isWoken, false, "two notifications before the first wait are one");
  wakeup.notify();
  await waiting;
});
