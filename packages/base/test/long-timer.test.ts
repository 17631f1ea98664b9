import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { longTimer, maxTimerMs } from "../src/long-timer.ts";

/** Timers and performance.now() that move only when the test moves them. */
function fakeClock(): { advance: (ms: number) => void } & Disposable {
  let now = 0;
  mock.timers.enable({ apis: ["setTimeout"] });
  const clock = mock.method(performance, "now", () => now);
  return {
    advance: (ms) => {
      now += ms;
      mock.timers.tick(ms);
    },
    [Symbol.dispose]: () => {
      mock.timers.reset();
      clock.mock.restore();
    },
  };
}

test("longTimer() fires once, also after more than setTimeout() can wait", () => {
  using clock = fakeClock();
  let fired = 0;
  longTimer(maxTimerMs + 1000, () => fired++);
  clock.advance(maxTimerMs);
  assert.equal(fired, 0);
  clock.advance(999);
  assert.equal(fired, 0);
  clock.advance(1);
  assert.equal(fired, 1);
  clock.advance(maxTimerMs);
  assert.equal(fired, 1);
});

test("longTimer() fires soon when the delay is not positive", () => {
  using clock = fakeClock();
  let fired = 0;
  longTimer(-5, () => fired++);
  assert.equal(fired, 0);
  clock.advance(1);
  assert.equal(fired, 1);
});

test("longTimer() does not fire after it is disposed", () => {
  using clock = fakeClock();
  let fired = 0;
  longTimer(maxTimerMs * 2, () => fired++)[Symbol.dispose]();
  const second = longTimer(maxTimerMs * 2, () => fired++);
  clock.advance(maxTimerMs);
  second[Symbol.dispose]();
  clock.advance(maxTimerMs);
  assert.equal(fired, 0);
});
