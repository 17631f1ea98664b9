/** Deadlines as signals, for clients. */

/** A signal and what it was made of; disposing it stops the timer. */
export type DeadlineSignal = Disposable & {
  readonly signal: AbortSignal;
  /** True if the time was up before the outer signal fired. */
  readonly isLate: boolean;
};

/**
 * Fires after `ms`, or when `outer` fires. Keeps its timer until it is disposed: Node 20 collects the timer of
 * `AbortSignal.timeout()` when only `AbortSignal.any()` refers to it, and then the signal never fires.
 */
export function deadlineSignal(ms: number, outer?: AbortSignal): DeadlineSignal {
  const controller = new AbortController();
  let isLate = false;
  const follow = (): void => controller.abort(outer?.reason);
  const timer = setTimeout(() => {
    isLate = !controller.signal.aborted;
    controller.abort(new Error(`The time of ${ms} ms is up`));
  }, ms);
  if (outer?.aborted) follow();
  else outer?.addEventListener("abort", follow, { once: true });
  return {
    signal: controller.signal,
    get isLate() {
      return isLate;
    },
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      outer?.removeEventListener("abort", follow);
    },
  };
}
