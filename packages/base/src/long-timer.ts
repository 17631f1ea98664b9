/** Timers without the limit of setTimeout(), which fires at once beyond 2^31 milliseconds. */

/** The longest delay that setTimeout() takes. */
export const maxTimerMs = 2 ** 31 - 1;

/**
 * Calls `onDue` once, after `ms` by the monotonic clock: setting the wall clock does not move it. The timer
 * does not keep the process alive. Disposing it cancels the call.
 */
export function longTimer(ms: number, onDue: () => void): Disposable {
  const dueMs = performance.now() + ms;
  let timer: NodeJS.Timeout;
  const arm = (): void => {
    const leftMs = dueMs - performance.now();
    // A timer may fire a moment early.
    if (leftMs <= 0) return onDue();
    timer = setTimeout(arm, Math.min(leftMs, maxTimerMs)).unref();
  };
  timer = setTimeout(arm, Math.min(Math.max(0, ms), maxTimerMs)).unref();
  return { [Symbol.dispose]: () => clearTimeout(timer) };
}
