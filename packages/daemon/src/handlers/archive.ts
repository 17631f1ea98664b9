/** Packing a snapshot: progress as a stream. */
import type { PackEvent } from "@forkd/contract";
import { packSnapshot } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";
import { workEvents } from "./work-events.ts";

export function archiveHandlers({ runtime }: Pick<Daemon, "runtime">) {
  return {
    packSnapshot: (input, context) => {
      const startedAt = performance.now();
      return workEvents<PackEvent>(async (emit) => ({
        type: "packed",
        packed: await packSnapshot(runtime, input, {
          ...context,
          onProgress: ({ phase, doneBytes: done, totalBytes: total }) =>
            emit({
              type: "progress",
              phase,
              done,
              total,
              elapsed_ms: Math.round(performance.now() - startedAt),
            }),
        }),
      }));
    },
  } satisfies Partial<Handlers>;
}
