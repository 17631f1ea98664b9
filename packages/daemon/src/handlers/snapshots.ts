import { createSnapshot, listSnapshots, removeSnapshot, snapshotInfo } from "@forkd/runtime";
import { buildEvents } from "../build-events.ts";
import type { Handlers } from "../router.ts";
import type { Daemon } from "./all.ts";

export function snapshotHandlers({ runtime }: Daemon) {
  return {
    listSnapshots: () => listSnapshots(runtime),
    createSnapshot: (input, context) =>
      buildEvents((onProgress) => createSnapshot(runtime, input, { ...context, onProgress })),
    snapshotInfo: (input) => snapshotInfo(runtime, input),
    removeSnapshot: async (input) => {
      await removeSnapshot(runtime, input);
    },
  } satisfies Partial<Handlers>;
}
