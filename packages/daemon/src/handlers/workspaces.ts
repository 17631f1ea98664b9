import {
  createWorkspace,
  deleteWorkspace,
  getWorkspace,
  listWorkspaces,
  resumeWorkspace,
  suspendWorkspace,
} from "@forkd/runtime";
import type { Handlers } from "../router.ts";
import type { Daemon } from "./all.ts";

export function workspaceHandlers({ runtime }: Daemon) {
  return {
    listWorkspaces: () => listWorkspaces(runtime),
    createWorkspace: (input, context) => createWorkspace(runtime, input, context),
    getWorkspace: (input) => getWorkspace(runtime, input),
    deleteWorkspace: async (input) => {
      await deleteWorkspace(runtime, input);
    },
    suspendWorkspace: (input, context) => suspendWorkspace(runtime, input, context),
    resumeWorkspace: (input, context) => resumeWorkspace(runtime, input, context),
  } satisfies Partial<Handlers>;
}
