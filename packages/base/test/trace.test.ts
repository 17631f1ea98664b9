import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../src/logger.ts";
import { Trace } from "../src/trace.ts";

const logger = (level: string) => createLogger({ level, destination: { write: () => undefined } });

test("Trace.when() gives nothing unless the log shows debug lines", () => {
  assert.equal(Trace.when(logger("info"), 0), undefined);
  assert.ok(Trace.when(logger("debug"), 0) instanceof Trace);
});

test("facts() has the time from the start to every step, in order", () => {
  const trace = new Trace(1000);
  trace.mark("first", 1002.5);
  trace.mark("second", 1010);
  const { at_unix_ms: at, steps } = trace.facts();
  assert.deepEqual(Object.entries(steps), [
    ["first", 2.5],
    ["second", 10],
  ]);
  assert.ok(Math.abs(at - (performance.timeOrigin + 1000)) < 0.01);
});
