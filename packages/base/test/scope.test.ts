import assert from "node:assert/strict";
import { test } from "node:test";
import { Scope } from "../src/scope.ts";

function failing(message: string): () => Promise<void> {
  return () => Promise.reject(new Error(message));
}

test("Scope runs its undos in reverse, one after the other", async () => {
  const log: string[] = [];
  {
    await using scope = new Scope();
    scope.defer(() => void log.push("first"));
    scope.defer(async () => {
      log.push("second begins");
      await new Promise((resolve) => setTimeout(resolve, 5));
      log.push("second ends");
    });
    scope.use({ [Symbol.asyncDispose]: async () => void log.push("third") });
    log.push("work");
  }
  assert.deepEqual(log, ["work", "third", "second begins", "second ends", "first"]);
});

test("Scope runs its undos when the work throws, and rethrows its failure", async () => {
  const log: string[] = [];
  const work = async (): Promise<void> => {
    await using scope = new Scope();
    scope.defer(() => void log.push("undone"));
    throw new Error("work failed");
  };
  await assert.rejects(work(), /work failed/);
  assert.deepEqual(log, ["undone"]);
});

test("use() returns what it was given", () => {
  const resource = { [Symbol.asyncDispose]: async () => undefined, name: "thing" };
  assert.equal(new Scope().use(resource), resource);
});

test("keep() moves the undos to a scope that outlives the first", async () => {
  const log: string[] = [];
  const build = async (): Promise<Scope> => {
    await using scope = new Scope();
    scope.defer(() => void log.push("first"));
    scope.defer(() => void log.push("second"));
    return scope.keep();
  };
  const kept = await build();
  assert.deepEqual(log, []);
  await kept[Symbol.asyncDispose]();
  assert.deepEqual(log, ["second", "first"]);
});

test("keep() leaves the first scope usable for later undos", async () => {
  const log: string[] = [];
  const scope = new Scope();
  scope.defer(() => void log.push("kept"));
  const kept = scope.keep();
  scope.defer(() => void log.push("own"));
  await scope[Symbol.asyncDispose]();
  assert.deepEqual(log, ["own"]);
  await kept[Symbol.asyncDispose]();
  assert.deepEqual(log, ["own", "kept"]);
});

test("Scope runs every undo when one fails, and rejects with that failure", async () => {
  const log: string[] = [];
  const scope = new Scope();
  scope.defer(() => void log.push("first"));
  scope.defer(failing("no luck"));
  scope.defer(() => void log.push("third"));
  await assert.rejects(scope[Symbol.asyncDispose](), /^Error: no luck$/);
  assert.deepEqual(log, ["third", "first"]);
});

test("Scope reports all failures together when several undos fail", async () => {
  const scope = new Scope();
  scope.defer(failing("one"));
  scope.defer(() => {
    throw new Error("two");
  });
  await assert.rejects(scope[Symbol.asyncDispose](), (error) => {
    assert.ok(error instanceof AggregateError);
    assert.deepEqual(
      error.errors.map((each: Error) => each.message),
      ["two", "one"],
    );
    return true;
  });
});

test("Scope runs an undo once, also when it is disposed twice or again while it runs", async () => {
  let runs = 0;
  const scope = new Scope();
  scope.defer(async () => {
    runs++;
    await new Promise((resolve) => setTimeout(resolve, 5));
  });
  await Promise.all([scope[Symbol.asyncDispose](), scope[Symbol.asyncDispose]()]);
  await scope[Symbol.asyncDispose]();
  assert.equal(runs, 1);
});
