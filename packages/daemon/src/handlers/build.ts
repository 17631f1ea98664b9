/** Building a snapshot: progress as a stream. */
import { createSnapshot } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import { buildEvents } from "./build-events.ts";
import type { Daemon } from "./daemon.ts";

export function buildHandlers({ runtime }: Pick<Daemon, "runtime">) {
  return {
    createSnapshot: (input, context) =>
      buildEvents((onProgress) => createSnapshot(runtime, input, { ...context, onProgress })),
  } satisfies Partial<Handlers>;
}
