/** Waiting that has an end. */

/** Waits for `work`, at most `ms`; then rejects with what `onTimeout` makes. The work itself is not stopped. */
export async function withDeadline<T>(work: Promise<T>, ms: number, onTimeout: () => Error): Promise<T> {
  using late = lateness(ms);
  return await Promise.race([
    work,
    late.came.then(() => {
      throw onTimeout();
    }),
  ]);
}

/** What `work` gives, or undefined after `ms`. The work itself is not stopped. */
export async function within<T>(work: Promise<T>, ms: number): Promise<T | undefined> {
  using late = lateness(ms);
  return await Promise.race([work, late.came]);
}

/**
 * Comes after `ms`, and a turn of the event loop later: what arrived while this process stood still is handled first, so that
 * nobody else is called late for it.
 */
function lateness(ms: number): { came: Promise<undefined> } & Disposable {
  let turn: NodeJS.Immediate | undefined;
  let timer: NodeJS.Timeout | undefined;
  const came = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => (turn = setImmediate(() => resolve(undefined))), ms);
  });
  return {
    came,
    [Symbol.dispose]: () => {
      clearTimeout(timer);
      clearImmediate(turn);
    },
  };
}
