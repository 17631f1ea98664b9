/** Work that reports through a callback → a stream of its events, the result last. */

/**
 * Resolves with the first event; rejects if the work fails before any, so that the failure can have a status.
 */
export async function workEvents<E extends object>(
  work: (emit: (event: E) => void) => Promise<E>,
): Promise<AsyncIterable<E>> {
  const waiting: E[] = [];
  let outcome: { result: E } | { error: unknown } | undefined;
  let wake = () => {};
  const changed = async () => {
    while (waiting.length === 0 && outcome === undefined)
      await new Promise<void>((resolve) => (wake = resolve));
  };
  const settle = (value: typeof outcome) => {
    outcome = value;
    wake();
  };
  void work((event) => {
    waiting.push(event);
    wake();
  }).then(
    (result) => settle({ result }),
    (error: unknown) => settle({ error }),
  );
  const events = async function* (): AsyncGenerator<E> {
    for (;;) {
      await changed();
      const event = waiting.shift();
      if (event) yield event;
      else if (outcome && "error" in outcome) throw outcome.error;
      else if (outcome) return yield outcome.result;
    }
  };
  await changed();
  // settle() assigns it while changed() waits, which the compiler cannot see.
  const early = outcome as { error?: unknown } | undefined;
  if (waiting.length === 0 && early && "error" in early) throw early.error;
  return events();
}
