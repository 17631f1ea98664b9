import {
  createWorkspace,
  deleteWorkspace,
  getWorkspace,
  listWorkspaces,
  resumeWorkspace,
  suspendWorkspace,
} from "@forkd/runtime";
import { byAgeKey, pageOf } from "../http/answer/page.ts";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./all.ts";

export function workspaceHandlers({ runtime }: Daemon) {
  return {
    listWorkspaces: ({ limit, cursor, ...filter }) =>
      pageOf(listWorkspaces(runtime, filter), { limit, cursor }, byAgeKey),
    createWorkspace: (input, context) => createWorkspace(runtime, input, context),
    getWorkspace: (input) => getWorkspace(runtime, input),
    deleteWorkspace: async (input) => {
      await deleteWorkspace(runtime, input);
    },
    suspendWorkspace: (input, context) => suspendWorkspace(runtime, input, context),
    resumeWorkspace: (input, context) => resumeWorkspace(runtime, input, context),
  } satisfies Partial<Handlers>;
}
