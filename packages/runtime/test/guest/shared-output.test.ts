import assert from "node:assert/strict";
import { test } from "node:test";
import { createDeferred, type Deferred } from "@forkd/base";
import type { AgentExit, AgentOutput } from "@forkd/machine";
import { SharedOutput, type OutputFollower } from "../../src/guest/shared-output.ts";

const ended: AgentExit = { code: 0, timedOut: false, userUs: 0, systemUs: 0, peakRssKib: 0 };

/** A process whose output the test writes. */
class Written {
  readonly #waiting: Deferred<IteratorResult<AgentOutput>>[] = [];
  readonly #ready: AgentOutput[] = [];
  readonly #totals = [0, 0, 0];
  /** how many pieces were asked for */
  asked = 0;
  isOver = false;

  next(): Promise<IteratorResult<AgentOutput>> {
    this.asked++;
    const value = this.#ready.shift();
    if (value) return Promise.resolve({ done: false, value });
    if (this.isOver) return Promise.resolve({ done: true, value: undefined });
    const waiter = createDeferred<IteratorResult<AgentOutput>>();
    this.#waiting.push(waiter);
    return waiter.promise;
  }

  exit(): Promise<AgentExit> {
    return Promise.resolve(ended);
  }

  write(text: string, stream: 1 | 2 = 1): void {
    const bytes = Buffer.from(text);
    const value = { stream, offset: this.#totals[stream] ?? 0, bytes };
    this.#totals[stream] = value.offset + bytes.length;
    const waiter = this.#waiting.shift();
    if (waiter) waiter.resolve({ done: false, value });
    else this.#ready.push(value);
  }

  end(): void {
    this.isOver = true;
    this.#waiting.shift()?.resolve({ done: true, value: undefined });
  }

  fail(error: Error): void {
    this.#waiting.shift()?.reject(error);
  }
}

async function textOf(follower: OutputFollower): Promise<string> {
  let text = "";
  for await (const { stream, offset, bytes } of follower) text += `${stream}@${offset}:${String(bytes)} `;
  return text.trim();
}

/** Lets everything run that does not wait for a timer or for I/O. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const large = "x".repeat(300 * 1024);

test("each follower gets all output in its order, from its own offsets", async () => {
  const source = new Written();
  const shared = new SharedOutput("a command", source);
  const first = textOf(shared.follow([0, 0]));
  source.write("abc");
  source.write("err", 2);
  await settle();
  const late = textOf(shared.follow([0, 0]));
  const middle = textOf(shared.follow([2, 3]));
  source.write("def");
  source.end();
  assert.equal(await first, "1@0:abc 2@0:err 1@3:def");
  assert.equal(await late, "1@0:abc 2@0:err 1@3:def");
  assert.equal(await middle, "1@2:c 1@3:def");
  const after = shared.follow([0, 0]);
  assert.equal(await textOf(after), "1@0:abc 2@0:err 1@3:def");
  assert.deepEqual(after.exit, ended);
});

test("a follower that joins late gets the output that is kept", async () => {
  const source = new Written();
  const shared = new SharedOutput("a command", source);
  const reader = textOf(shared.follow([0, 0]));
  for (let i = 0; i < 10; i++) source.write(large);
  await settle();
  const { value } = await shared.follow([0, 0]).next();
  const kept = 10 * large.length - (value as AgentOutput).offset;
  assert.ok(kept >= 256 * 1024 && kept <= 1024 * 1024, `${kept} bytes`);
  source.end();
  await reader;
});

test("the process waits for its only follower, however long", async () => {
  const source = new Written();
  const shared = new SharedOutput("a command", source, { stallMs: 1 });
  const follower = shared.follow([0, 0]);
  for (let i = 0; i < 20; i++) source.write(large);
  source.end();
  await settle();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.ok(source.asked <= 5, `${source.asked} pieces are buffered`);
  let bytes = 0;
  for await (const piece of follower) bytes += piece.bytes.length;
  assert.equal(bytes, 20 * large.length);
});

test("a follower that reads nothing is ended, and the others get everything", async () => {
  const source = new Written();
  const shared = new SharedOutput("command 7", source, { stallMs: 50 });
  const stalled = shared.follow([0, 0]);
  await Promise.resolve();
  let bytes = 0;
  const reader = (async () => {
    for await (const piece of shared.follow([0, 0])) bytes += piece.bytes.length;
  })();
  for (let i = 0; i < 20; i++) source.write(large);
  source.end();
  await reader;
  assert.equal(bytes, 20 * large.length);
  await assert.rejects(stalled.next(), { code: "deadline_exceeded", message: /command 7.*read nothing/ });
  assert.ok(stalled.hasStalled);
  assert.equal(shared.followers, 1);
});

test("a follower that is closed does not hold up the process", async () => {
  const source = new Written();
  const shared = new SharedOutput("a command", source);
  const slow = shared.follow([0, 0]);
  const waiting = shared.follow([0, 0]);
  const pending = waiting.next();
  waiting.close();
  assert.equal((await pending).done, true);
  for (let i = 0; i < 20; i++) source.write(large);
  source.end();
  slow.close();
  assert.equal(shared.followers, 0);
  const later = shared.follow([20 * large.length, 0]);
  assert.equal(await textOf(later), "");
  assert.deepEqual(later.exit, ended);
});

test("every follower gets the error of the source", async () => {
  const source = new Written();
  const shared = new SharedOutput("a command", source);
  const both = [shared.follow([0, 0]), shared.follow([0, 0])].map((each) => each.next());
  await settle();
  source.fail(new Error("lost"));
  for (const each of both) await assert.rejects(each, /lost/);
});

test("many small pieces are kept only up to a number", async () => {
  const source = new Written();
  const shared = new SharedOutput("a command", source);
  const reader = textOf(shared.follow([0, 0]));
  for (let i = 0; i < 10_000; i++) source.write("x");
  await settle();
  const { value } = await shared.follow([0, 0]).next();
  assert.ok((value as AgentOutput).offset >= 10_000 - 4097);
  source.end();
  await reader;
});
