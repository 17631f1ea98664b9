/** A build that reports through a callback → a stream of BuildEvent. */
import type { BuildEvent, SnapshotInfo } from "@forkd/contract";
import { workEvents } from "./work-events.ts";

export type Build = (onProgress: (step: string, message: string) => void) => Promise<SnapshotInfo>;

export function buildEvents(build: Build): Promise<AsyncIterable<BuildEvent>> {
  const startedAt = performance.now();
  return workEvents<BuildEvent>(async (emit) => {
    let current: { step: string; message: string; startedAt: number } | undefined;
    const endStep = () => {
      if (!current) return;
      const { step, message, startedAt: began } = current;
      emit({ type: "step", step, message, duration_ms: Math.round(performance.now() - began) });
      current = undefined;
    };
    const snapshot = await build((step, message) => {
      if (current?.step !== step) endStep();
      current = { step, message, startedAt: current?.startedAt ?? performance.now() };
      emit({ type: "progress", step, message, elapsed_ms: Math.round(performance.now() - startedAt) });
    });
    endStep();
    return { type: "snapshot", snapshot };
  });
}
