import {
  compact,
  createSnapshot,
  findSnapshots,
  gc,
  removeSnapshot,
  snapshotInfo,
  tree,
} from "@forkd/runtime";
import { buildEvents } from "./build-events.ts";
import { byTagKey, pageOf } from "../http/answer/page.ts";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./all.ts";

export function snapshotHandlers({ runtime }: Daemon) {
  return {
    listSnapshots: async ({ limit, cursor, ...filter }) =>
      pageOf(await findSnapshots(runtime, filter), { limit, cursor }, byTagKey),
    createSnapshot: (input, context) =>
      buildEvents((onProgress) => createSnapshot(runtime, input, { ...context, onProgress })),
    snapshotInfo: (input) => snapshotInfo(runtime, input),
    compact: (input, context) => compact(runtime, input, context),
    tree: () => tree(runtime),
    gc: (input) => gc(runtime, input),
    removeSnapshot: async (input) => {
      await removeSnapshot(runtime, input);
    },
  } satisfies Partial<Handlers>;
}
