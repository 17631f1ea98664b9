/** Lists, page by page. */
import { findSnapshots, listSandboxes, listWorkspaces } from "@forkd/runtime";
import { byAgeKey, byTagKey, pageOf } from "../http/answer/page.ts";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";

export function listHandlers({ runtime }: Pick<Daemon, "runtime">) {
  return {
    listSnapshots: async ({ limit, cursor, ...filter }) =>
      pageOf(await findSnapshots(runtime, filter), { limit, cursor }, byTagKey),
    listSandboxes: ({ limit, cursor, ...filter }) =>
      pageOf(listSandboxes(runtime, filter), { limit, cursor }, byAgeKey),
    listWorkspaces: ({ limit, cursor, ...filter }) =>
      pageOf(listWorkspaces(runtime, filter), { limit, cursor }, byAgeKey),
  } satisfies Partial<Handlers>;
}
