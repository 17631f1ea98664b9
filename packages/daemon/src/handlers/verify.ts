/** Checking a snapshot: progress and results as a stream. */
import type { VerifyEvent } from "@forkd/contract";
import { verify } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";
import { workEvents } from "./work-events.ts";

export function verifyHandlers({ runtime }: Pick<Daemon, "runtime">) {
  return {
    verifySnapshot: (input, context) => {
      const startedAt = performance.now();
      const elapsed = () => Math.round(performance.now() - startedAt);
      return workEvents<VerifyEvent>(async (emit) => ({
        type: "report",
        report: await verify(runtime, input, {
          ...context,
          onProgress: (message) => emit({ type: "progress", message, elapsed_ms: elapsed() }),
          onHazard: (hazard) => emit({ type: "hazard", hazard }),
        }),
      }));
    },
  } satisfies Partial<Handlers>;
}
