/** Sharing snapshots: progress as a stream. */
import type { PullEvent, PushEvent } from "@forkd/contract";
import { createSnapshot, pull, push } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";
import { workEvents } from "./work-events.ts";

type PullBuild = Parameters<typeof pull>[2]["build"];
type Reported = { step: string; message: string; doneBytes?: number; totalBytes?: number };

export function hubHandlers({ runtime }: Pick<Daemon, "runtime">) {
  return {
    push: (input, context) =>
      workEvents<PushEvent>(async (emit) => ({
        type: "pushed",
        push: await push(runtime, input, { ...context, onProgress: reporter(emit) }),
      })),
    pull: (input, context) =>
      workEvents<PullEvent>(async (emit) => {
        const onProgress = reporter(emit);
        const report = (step: string, message: string) => onProgress({ step, message });
        const build: PullBuild = (request, signal) =>
          createSnapshot(runtime, request, { ...context, signal, onProgress: report });
        return { type: "pulled", pull: await pull(runtime, input, { ...context, onProgress, build }) };
      }),
  } satisfies Partial<Handlers>;
}

function reporter(
  emit: (event: Extract<PullEvent, { type: "progress" }>) => void,
): (progress: Reported) => void {
  const startedAt = performance.now();
  return ({ step, message, doneBytes, totalBytes }) =>
    emit({
      type: "progress",
      step,
      message,
      ...(doneBytes !== undefined && { done_bytes: doneBytes }),
      ...(totalBytes !== undefined && { total_bytes: totalBytes }),
      elapsed_ms: Math.round(performance.now() - startedAt),
    });
}
