/** A build that reports through a callback → a stream of BuildEvent. */
import type { BuildEvent, SnapshotInfo } from "@forkd/contract";

export type Build = (onProgress: (step: string, message: string) => void) => Promise<SnapshotInfo>;

/**
 * Resolves with the first event; rejects if the build fails before any progress, so that it can have a
 * status.
 */
export async function buildEvents(build: Build): Promise<AsyncIterable<BuildEvent>> {
  const startedAt = performance.now();
  const waiting: BuildEvent[] = [];
  let outcome: { snapshot: SnapshotInfo } | { error: unknown } | undefined;
  let wake = () => {};
  const changed = async () => {
    while (waiting.length === 0 && outcome === undefined)
      await new Promise<void>((resolve) => (wake = resolve));
  };
  const settle = (value: typeof outcome) => {
    outcome = value;
    wake();
  };
  let current: { step: string; message: string; startedAt: number } | undefined;
  const endStep = () => {
    if (!current) return;
    const { step, message, startedAt: began } = current;
    waiting.push({ type: "step", step, message, duration_ms: Math.round(performance.now() - began) });
    current = undefined;
  };
  void build((step, message) => {
    if (current?.step !== step) endStep();
    current = { step, message, startedAt: current?.startedAt ?? performance.now() };
    waiting.push({ type: "progress", step, message, elapsed_ms: Math.round(performance.now() - startedAt) });
    wake();
  }).then(
    (snapshot) => {
      endStep();
      settle({ snapshot });
    },
    (error: unknown) => settle({ error }),
  );
  const events = async function* (): AsyncGenerator<BuildEvent> {
    for (;;) {
      await changed();
      const event = waiting.shift();
      if (event) yield event;
      else if (outcome && "error" in outcome) throw outcome.error;
      else if (outcome) return yield { type: "snapshot", snapshot: outcome.snapshot };
    }
  };
  await changed();
  // settle() assigns it while changed() waits, which the compiler cannot see.
  const early = outcome as { error?: unknown } | undefined;
  if (waiting.length === 0 && early && "error" in early) throw early.error;
  return events();
}
