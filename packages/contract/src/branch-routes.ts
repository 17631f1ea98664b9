/** Routes of branches, pauses, workspaces and lineage. */
import { z } from "zod";
import {
  branchRequestSchema,
  branchResultSchema,
  createWorkspaceSchema,
  gcRequestSchema,
  gcSchema,
  rewindRequestSchema,
  treeSchema,
  workspaceNameSchema,
  workspaceSchema,
  workspaceStatusSchema,
} from "./branch.ts";
import { sandboxIdSchema, tagSchema } from "./ids.ts";
import { labelFilterSchema, nextPageHeaders, pageFields } from "./lists.ts";
import { contentBodyBytes, idempotencyKeyHeader, replayedHeader, route } from "./route.ts";
import { sandboxSchema } from "./sandboxes.ts";
import { snapshotSchema } from "./snapshots.ts";

const inSandbox = z.strictObject({ id: sandboxIdSchema });
const inWorkspace = z.strictObject({ name: workspaceNameSchema });
const sandboxPath = "/v1/sandboxes/{id}";
const workspacePath = "/v1/workspaces/{name}";

export const branchRoutes = {
  branch: route({
    method: "post",
    path: `${sandboxPath}/branch`,
    summary: "Capture a running sandbox as a snapshot; it goes on. With n, fork children from it",
    status: 201,
    pendingStatus: 202,
    kind: "json",
    scope: "run",
    maxBodyBytes: contentBodyBytes,
    headers: [idempotencyKeyHeader],
    answerHeaders: [replayedHeader],
    input: branchRequestSchema,
    output: branchResultSchema,
  }),
  pause: route({
    method: "post",
    path: `${sandboxPath}/pause`,
    summary: "Save a sandbox to disk and end its machine; the id stays",
    status: 200,
    kind: "json",
    scope: "run",
    input: inSandbox,
    output: sandboxSchema,
  }),
  resume: route({
    method: "post",
    path: `${sandboxPath}/resume`,
    summary: "Go on with a paused sandbox",
    status: 200,
    kind: "json",
    scope: "run",
    input: inSandbox,
    output: sandboxSchema,
  }),
  rewind: route({
    method: "post",
    path: `${sandboxPath}/rewind`,
    summary: "Return a sandbox in place to a snapshot of its own lineage",
    status: 200,
    kind: "json",
    scope: "run",
    input: rewindRequestSchema,
    output: sandboxSchema,
  }),
  compact: route({
    method: "post",
    path: "/v1/snapshots/{tag}/compact",
    summary: "Copy a snapshot into one without a parent",
    status: 200,
    kind: "json",
    scope: "run",
    input: z.strictObject({ tag: tagSchema, to: tagSchema }),
    output: snapshotSchema,
  }),
  tree: route({
    method: "get",
    path: "/v1/tree",
    summary: "Lineage of snapshots and sandboxes",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: treeSchema,
  }),
  gc: route({
    method: "post",
    path: "/v1/gc",
    summary: "Remove what nothing refers to: flat images nobody maps, unfinished snapshots, strays",
    status: 200,
    kind: "json",
    scope: "admin",
    input: gcRequestSchema,
    output: gcSchema,
  }),
  listWorkspaces: route({
    method: "get",
    path: "/v1/workspaces",
    summary: "List workspaces, the oldest first",
    status: 200,
    kind: "json",
    scope: "read",
    repeatable: ["label"],
    answerHeaders: nextPageHeaders,
    input: z.strictObject({
      ...pageFields,
      tag: tagSchema.optional(),
      label: labelFilterSchema.optional(),
      state: workspaceStatusSchema.optional(),
      owner: z.string().max(256).optional(),
    }),
    output: z.array(workspaceSchema),
  }),
  createWorkspace: route({
    method: "post",
    path: "/v1/workspaces",
    summary: "Fork a sandbox with a name, which survives a restart of the host once it was suspended",
    status: 201,
    kind: "json",
    scope: "run",
    headers: [idempotencyKeyHeader],
    answerHeaders: [replayedHeader],
    input: createWorkspaceSchema,
    output: workspaceSchema,
  }),
  getWorkspace: route({
    method: "get",
    path: workspacePath,
    summary: "One workspace",
    status: 200,
    kind: "json",
    scope: "read",
    input: inWorkspace,
    output: workspaceSchema,
  }),
  deleteWorkspace: route({
    method: "delete",
    path: workspacePath,
    summary: "Kill a workspace and remove its saved state",
    status: 204,
    kind: "json",
    scope: "run",
    input: inWorkspace,
    output: z.undefined(),
  }),
  suspendWorkspace: route({
    method: "post",
    path: `${workspacePath}/suspend`,
    summary: "Pause the sandbox of a workspace",
    status: 200,
    kind: "json",
    scope: "run",
    input: inWorkspace.extend({
      diff: z
        .boolean()
        .optional()
        .meta({ description: "Accepted for compatibility; only what changed is ever saved" }),
    }),
    output: workspaceSchema,
  }),
  resumeWorkspace: route({
    method: "post",
    path: `${workspacePath}/resume`,
    summary: "Resume the sandbox of a workspace",
    status: 200,
    kind: "json",
    scope: "run",
    input: inWorkspace,
    output: workspaceSchema,
  }),
} as const;
