/** Workspaces: sandboxes with a name, which can outlive a restart of the host. */
import { z } from "zod";
import { envSchema, labelsSchema, sandboxIdSchema, tagSchema } from "./ids.ts";
import { givenOnce, isGivenOnce, lifetimeFields, limitFields } from "./limits.ts";
import { labelFilterSchema, pageFields } from "./lists.ts";
import { networkFields } from "./network.ts";
import { noAnswer, route } from "./route.ts";

export const workspaceNameSchema = tagSchema.meta({ description: "Name of a workspace" });

/** `stale`: its machine was lost before it was ever suspended; resume starts it again from its snapshot */
const workspaceStatusSchema = z.enum(["running", "suspended", "stale", "dead"]);

const workspaceSchema = z.object({
  /** of its sandbox; does not change */
  id: sandboxIdSchema,
  name: workspaceNameSchema,
  source_snapshot_tag: tagSchema,
  status: workspaceStatusSchema,
  /**
   * if its machine ended unasked: since when its changes are lost, and why; also in the answer to the resume that
   * starts the next machine
   */
  lost: z.object({ since: z.enum(["created", "suspended"]), reason: z.string() }).optional(),
  live_sandbox_id: sandboxIdSchema.optional(),
  created_at_unix: z.number(),
  last_active_unix: z.number(),
});
export type WorkspaceInfo = z.output<typeof workspaceSchema>;

const createWorkspaceSchema = z
  .strictObject({
    name: workspaceNameSchema,
    snapshot_tag: tagSchema,
    env: envSchema.default({}),
    labels: labelsSchema.default({}),
    ...lifetimeFields,
    ...limitFields,
    ...networkFields,
  })
  .refine(isGivenOnce, givenOnce);

const inWorkspace = z.strictObject({ name: workspaceNameSchema });
const workspacePath = "/v1/workspaces/{name}";

export const workspaceRoutes = {
  listWorkspaces: route({
    method: "get",
    path: "/v1/workspaces",
    summary: "List workspaces, the oldest first",
    status: 200,
    kind: "json",
    scope: "read",
    repeatable: ["label"],
    paged: true,
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
    summary: "Fork a sandbox with a name; once suspended, it outlives a restart of the host",
    status: 201,
    kind: "json",
    scope: "run",
    idempotencyKey: "honoured",
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
    output: noAnswer,
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
        .meta({ description: "Accepted for compatibility; only changes are ever saved" }),
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
