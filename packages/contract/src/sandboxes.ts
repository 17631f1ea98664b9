/** Sandboxes: what a caller asks for and what a caller sees. */
import { z } from "zod";
import { errorBodySchema } from "./error-body.ts";
import { envSchema, inSandbox, labelsSchema, sandboxIdSchema, sandboxPath, tagSchema } from "./ids.ts";
import {
  givenOnce,
  isGivenOnce,
  lifetimeFields,
  limitFields,
  limitsSchema,
  notEnforcedSchema,
  onTimeoutSchema,
  timeoutsSchema,
} from "./limits.ts";
import { labelFilterSchema, pageFields } from "./lists.ts";
import { jailVariantSchema, networkFields, sandboxNetworkSchema, secretNameSchema } from "./network.ts";
import { contentBodyBytes, noAnswer, queryFlag, route } from "./route.ts";

export const acceleratorSchema = z.enum(["kvm", "tcg"]);
export type Accelerator = z.output<typeof acceleratorSchema>;

export const sandboxStateSchema = z.enum(["running", "paused", "dead"]);

export const sandboxSchema = z.object({
  id: sandboxIdSchema,
  snapshot_tag: tagSchema,
  state: sandboxStateSchema,
  /** why a dead sandbox stopped; for a paused one: a note about its state */
  reason: z.string().optional(),
  created_at_unix: z.number(),
  /** present if the sandbox has a time to live */
  expires_at_unix: z.number().optional(),
  /** process id of the VMM on the host */
  pid: z.number().optional(),
  /** position in the fork call that made it, from 0 */
  index: z.number(),
  hostname: z.string(),
  labels: z.record(z.string(), z.string()),
  vcpus: z.number(),
  memory_mib: z.number(),
  accelerator: acceleratorSchema,
  languages: z.array(z.string()),
  /** from the request to the answer of the agent */
  ready_ms: z.number(),
  /** pool: its machine waited ready until it was handed out; start: its machine was started for it */
  from: z.enum(["pool", "start"]),
  /** when a paused sandbox was saved */
  paused_at_unix: z.number().optional(),
  /** branches of it so far by this daemon */
  branch_count: z.number(),
  workspace: z.string().optional(),
  /** name of the key that asked for it */
  owner: z.string().optional(),
  /** stable code for `reason`, if there is one */
  reason_code: z.enum(["out_of_memory", "host_out_of_memory", "disk_limit"]).optional(),
  /** limits of the sandbox */
  limits: limitsSchema.optional(),
  /** limits that this host cannot enforce */
  limits_not_enforced: z.array(notEnforcedSchema).optional(),
  idle_timeout_secs: z.number().optional(),
  on_timeout: onTimeoutSchema.optional(),
  auto_resume: z.boolean().optional(),
  /** absent without a machine */
  jail: jailVariantSchema.optional(),
  network: sandboxNetworkSchema.optional(),
  /** names of its secrets, if it has any */
  secrets: z.array(secretNameSchema).optional(),
});
export type SandboxInfo = z.output<typeof sandboxSchema>;

export const variationSchema = z.strictObject({
  env: envSchema.optional(),
  /** any JSON, readable in the child as /run/forkd/values.json */
  values: z.unknown().optional(),
});

const switchedOff = (name: string) =>
  z
    .literal(false, { error: `${name} is not supported: leave it out or set it to false` })
    .optional()
    .meta({ description: "Accepted for compatibility; only false" });

export const forkRequestSchema = z
  .strictObject({
    snapshot_tag: tagSchema,
    n: z.int().min(1, "must be 1 to 1000").max(1000, "must be 1 to 1000").default(1),
    labels: labelsSchema.default({}),
    env: envSchema.default({}),
    /** one entry per child, in order; at most n */
    vary: z.array(variationSchema).max(1000).default([]),
    ...lifetimeFields,
    ...limitFields,
    ...networkFields,
    prewarm: z
      .boolean()
      .default(false)
      .meta({ description: "Accepted for compatibility; every child is warm" }),
    live_fork: z.boolean().default(false).meta({ description: "Accepted for compatibility; no effect" }),
    per_child_netns: z
      .boolean()
      .optional()
      .meta({ description: "Accepted for compatibility; every child has its own namespace" }),
    hugepages: switchedOff("hugepages"),
  })
  .refine(isGivenOnce, givenOnce)
  .refine((request) => request.vary.length <= request.n, {
    path: ["vary"],
    message: "must not have more entries than n",
  });
export type ForkRequest = z.output<typeof forkRequestSchema>;

/** A child that could not be made; the other children are not affected. */
const forkFailureSchema = errorBodySchema.extend({ index: z.number() });
export const forkResultSchema = z.array(z.union([sandboxSchema, forkFailureSchema]));
export type ForkEntry = z.output<typeof forkResultSchema>[number];

export const sandboxRoutes = {
  listSandboxes: route({
    method: "get",
    path: "/v1/sandboxes",
    summary: "List sandboxes, the oldest first",
    status: 200,
    kind: "json",
    scope: "read",
    repeatable: ["label"],
    paged: true,
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
    idempotencyKey: "honoured",
    input: forkRequestSchema,
    output: forkResultSchema,
  }),
  killAll: route({
    method: "delete",
    path: "/v1/sandboxes",
    summary: "Kill all sandboxes that match; without a filter also stop the children that wait ready",
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
    output: noAnswer,
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
    summary: "Ask the agent whether it answers",
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
    endless: true,
    input: inSandbox.extend({
      follow: queryFlag.optional(),
      tail: z.coerce.number().int().min(1).optional(),
    }),
    output: noAnswer,
  }),
} as const;

export const timeoutRoutes = {
  setTimeouts: route({
    method: "post",
    path: `${sandboxPath}/timeouts`,
    summary:
      "Change time to live, idle timeout and what happens then; null removes a time, absent fields stay",
    status: 200,
    kind: "json",
    scope: "run",
    input: timeoutsSchema.extend({ id: sandboxIdSchema }),
    output: sandboxSchema,
  }),
} as const;
