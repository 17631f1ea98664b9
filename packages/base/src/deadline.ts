/** Waits with a deadline. */

/**
 * Waits for `work`, at most `ms`; then rejects with the error that `onTimeout` makes. The work itself is not
 * stopped.
 */
export async function withDeadline<T>(work: Promise<T>, ms: number, onTimeout: () => Error): Promise<T> {
  using late = lateness(ms);
  return await Promise.race([
    work,
    late.came.then(() => {
      throw onTimeout();
    }),
  ]);
}

/** The result of `work`, or undefined after `ms`. The work itself is not stopped. */
export async function within<T>(work: Promise<T>, ms: number): Promise<T | undefined> {
  using late = lateness(ms);
  return await Promise.race([work, late.came]);
}

/** A timer that fires so much too late shows that this process did not run, and its peers perhaps not either. */
const stoppedMs = 1000;
/** Bounds the wait on a host that is always late. */
const maxExtensions = 2;

/**
 * Resolves after `ms` and one more turn of the event loop: data that arrived while this process was stopped
 * is handled first, so that a peer that answered in time does not count as late. If this process was stopped,
 * for example with the whole container, the peer gets the time again.
 */
function lateness(ms: number): { came: Promise<undefined> } & Disposable {
  let turn: NodeJS.Immediate | undefined;
  let timer: NodeJS.Timeout | undefined;
  const came = new Promise<undefined>((resolve) => {
    const arm = (extensions: number): void => {
      const due = performance.now() + ms;
      timer = setTimeout(() => {
        if (extensions > 0 && performance.now() - due > stoppedMs) arm(extensions - 1);
        else turn = setImmediate(() => resolve(undefined));
      }, ms);
    };
    arm(maxExtensions);
  });
  return {
    came,
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      clearImmediate(turn);
    },
  };
}
