/**
 * The table of routes. Server, OpenAPI document and client are driven by it.
 *
 * `input` holds path parameters, query (GET, DELETE, PUT) and JSON body (POST) in one object. `kind` says what the body
 * of the answer is: one JSON value, lines of JSON (`events`), server-sent events (`sse`), raw bytes (`bytes`), plain text
 * (`text`), or raw bytes in the request (`upload`).
 */
import { z } from "zod";
import { branchRoutes } from "./branch-routes.ts";
import { configRoutes } from "./config-routes.ts";
import { guestRoutes } from "./guest-routes.ts";
import { labelFilterSchema, nextPageHeaders, pageFields } from "./lists.ts";
import { observeRoutes } from "./observe-routes.ts";
import { sandboxIdSchema, tagSchema } from "./ids.ts";
import { keyRoutes } from "./key-routes.ts";
import { contentBodyBytes, idempotencyKeyHeader, replayedHeader, route } from "./route.ts";
import { limitRoutes } from "./limit-routes.ts";
import { forkRequestSchema, forkResultSchema, sandboxSchema, sandboxStateSchema } from "./sandboxes.ts";
import {
  buildEventSchema,
  createSnapshotSchema,
  snapshotDetailSchema,
  snapshotSchema,
  snapshotStatusSchema,
} from "./snapshots.ts";
import { cleanupSchema, doctorSchema, healthSchema, statusSchema, versionSchema } from "./system.ts";

export type { Route } from "./route.ts";

const none = z.undefined();
const inSandbox = z.strictObject({ id: sandboxIdSchema });
const flag = z.enum(["true", "false", "1", "0"]).transform((text) => text === "true" || text === "1");
const sandboxPath = "/v1/sandboxes/{id}";

export const routes = {
  health: route({
    method: "get",
    path: "/healthz",
    summary: "Liveness; needs no token",
    status: 200,
    kind: "json",
    scope: "open",
    input: z.strictObject({}),
    output: healthSchema,
  }),
  version: route({
    method: "get",
    path: "/version",
    summary: "Version of the daemon",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: versionSchema,
  }),
  status: route({
    method: "get",
    path: "/v1/status",
    summary: "What the daemon holds",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: statusSchema,
  }),
  doctor: route({
    method: "get",
    path: "/v1/doctor",
    summary: "Check the host; with boot=true also start a small guest on each accelerator",
    status: 200,
    kind: "json",
    scope: "read",
    // It starts processes that no limit counts.
    adminInputs: ["boot"],
    input: z.strictObject({ boot: flag.optional() }),
    output: doctorSchema,
  }),
  cleanup: route({
    method: "post",
    path: "/v1/cleanup",
    summary: "Remove what nothing refers to",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ dry_run: z.boolean().default(false) }),
    output: cleanupSchema,
  }),
  shutdown: route({
    method: "post",
    path: "/v1/shutdown",
    summary: "Stop the daemon; running sandboxes are kept for the next one or stopped",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({
      /** default: what the daemon is set to */
      sandboxes: z.enum(["keep", "stop"]).optional(),
    }),
    output: z.object({ stopped: z.number(), kept: z.number() }),
  }),

  listSnapshots: route({
    method: "get",
    path: "/v1/snapshots",
    summary: "List snapshots, ordered by tag",
    status: 200,
    kind: "json",
    scope: "read",
    answerHeaders: nextPageHeaders,
    input: z.strictObject({
      ...pageFields,
      tag: tagSchema.optional(),
      state: snapshotStatusSchema.optional(),
      parent: tagSchema.optional().meta({ description: "Only direct layers over this snapshot" }),
      branched_from: sandboxIdSchema.optional(),
    }),
    output: z.array(snapshotSchema),
  }),
  createSnapshot: route({
    method: "post",
    path: "/v1/snapshots",
    summary: "Build a snapshot from a recipe or a root file system; writes lines of progress",
    status: 201,
    kind: "events",
    // It reads any path of the host that the daemon can read, its token among them.
    scope: "admin",
    input: createSnapshotSchema,
    output: buildEventSchema,
  }),
  snapshotInfo: route({
    method: "get",
    path: "/v1/snapshots/{tag}/info",
    summary: "Everything about a snapshot",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({ tag: tagSchema, verify: flag.optional() }),
    output: snapshotDetailSchema,
  }),
  removeSnapshot: route({
    method: "delete",
    path: "/v1/snapshots/{tag}",
    summary: "Remove a snapshot",
    status: 204,
    kind: "json",
    scope: "run",
    adminInputs: ["force"],
    input: z
      .strictObject({
        tag: tagSchema,
        /** also the snapshots that are layers over it */
        cascade: flag.optional(),
        /** whatever depends on it: sandboxes that run from it go on, layers over it become unusable */
        force: flag.optional(),
      })
      .refine((request) => !(request.cascade && request.force), {
        path: ["cascade"],
        message: "cascade and force exclude each other",
      }),
    output: none,
  }),

  listSandboxes: route({
    method: "get",
    path: "/v1/sandboxes",
    summary: "List sandboxes, the oldest first",
    status: 200,
    kind: "json",
    scope: "read",
    repeatable: ["label"],
    answerHeaders: nextPageHeaders,
    input: z.strictObject({
      ...pageFields,
      tag: tagSchema.optional(),
      label: labelFilterSchema.optional(),
      state: sandboxStateSchema.optional(),
      workspace: tagSchema.optional(),
      owner: z.string().max(256).optional(),
    }),
    output: z.array(sandboxSchema),
  }),
  fork: route({
    method: "post",
    path: "/v1/sandboxes",
    summary: "Fork children from a snapshot; one entry per child, sandbox or error",
    status: 201,
    kind: "json",
    scope: "run",
    maxBodyBytes: contentBodyBytes,
    headers: [idempotencyKeyHeader],
    answerHeaders: [replayedHeader],
    input: forkRequestSchema,
    output: forkResultSchema,
  }),
  killAll: route({
    method: "delete",
    path: "/v1/sandboxes",
    summary: "Kill all sandboxes that match; without a filter also end the VMM processes started ahead",
    status: 200,
    kind: "json",
    scope: "run",
    repeatable: ["label"],
    input: z.strictObject({ tag: tagSchema.optional(), label: labelFilterSchema.optional() }),
    output: z.object({ killed: z.array(z.string()) }),
  }),
  getSandbox: route({
    method: "get",
    path: sandboxPath,
    summary: "One sandbox",
    status: 200,
    kind: "json",
    scope: "read",
    input: inSandbox,
    output: sandboxSchema,
  }),
  kill: route({
    method: "delete",
    path: sandboxPath,
    summary: "Kill a sandbox",
    status: 204,
    kind: "json",
    scope: "run",
    input: inSandbox,
    output: none,
  }),
  setTtl: route({
    method: "post",
    path: `${sandboxPath}/ttl`,
    summary: "Set the time to live from now; null removes it",
    status: 200,
    kind: "json",
    scope: "run",
    input: inSandbox.extend({ ttl_secs: z.int().min(1).max(31_536_000).nullable() }),
    output: sandboxSchema,
  }),
  ping: route({
    method: "post",
    path: `${sandboxPath}/ping`,
    summary: "Ask the agent for a sign of life",
    status: 200,
    kind: "json",
    scope: "run",
    input: inSandbox,
    output: z.object({ ok: z.boolean(), round_trip_ms: z.number() }),
  }),
  logs: route({
    method: "get",
    path: `${sandboxPath}/logs`,
    summary: "Console of the guest",
    status: 200,
    kind: "bytes",
    scope: "run",
    input: inSandbox.extend({ follow: flag.optional(), tail: z.coerce.number().int().min(1).optional() }),
    output: none,
  }),

  ...branchRoutes,
  ...configRoutes,
  ...keyRoutes,
  ...limitRoutes,
  ...guestRoutes,
  ...observeRoutes,
} as const;

export type Routes = typeof routes;
export type RouteName = keyof Routes;
export type RequestOf<N extends RouteName> = z.input<Routes[N]["input"]>;
export type ParsedOf<N extends RouteName> = z.output<Routes[N]["input"]>;
export type ResponseOf<N extends RouteName> = z.output<Routes[N]["output"]>;
