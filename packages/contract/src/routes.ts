/**
 * The table of routes. Server, OpenAPI document and client are driven by it.
 *
 * `input` holds path parameters, query (GET, DELETE, PUT) and JSON body (POST) in one object. `kind` says what the body
 * of the answer is: one JSON value, lines of JSON (`events`), raw bytes (`bytes`), or raw bytes in the request (`upload`).
 */
import { z } from "zod";
import {
  contextSchema,
  evalEventSchema,
  evalRequestSchema,
  evalResultSchema,
  execEventSchema,
  execInfoSchema,
  execInputSchema,
  execRequestSchema,
  execResultSchema,
  execSignalSchema,
  execStartedSchema,
  ptySizeSchema,
} from "./exec.ts";
import {
  chmodSchema,
  fileEntrySchema,
  mkdirSchema,
  moveSchema,
  pathQuerySchema,
  readQuerySchema,
  removeSchema,
  statQuerySchema,
  writeQuerySchema,
} from "./files.ts";
import { contextNameSchema, execIdSchema, languageSchema, sandboxIdSchema, tagSchema } from "./ids.ts";
import { forkRequestSchema, forkResultSchema, sandboxSchema } from "./sandbox.ts";
import { buildEventSchema, createSnapshotSchema, snapshotDetailSchema, snapshotSchema } from "./snapshot.ts";
import { cleanupSchema, doctorSchema, healthSchema, statusSchema, versionSchema } from "./system.ts";

export type Route = {
  readonly method: "get" | "post" | "put" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly status: 200 | 201 | 204;
  readonly kind: "json" | "events" | "bytes" | "upload";
  readonly input: z.ZodObject;
  /** of the value, or of one line */
  readonly output: z.ZodType;
  /** lines of this instead when the input says `stream: true` */
  readonly streamed?: z.ZodType;
};

function route<const R extends Route>(definition: R): R {
  return definition;
}

const none = z.undefined();
const inSandbox = z.strictObject({ id: sandboxIdSchema });
const inExec = inSandbox.extend({ exec_id: execIdSchema });
const flag = z.enum(["true", "false", "1", "0"]).transform((text) => text === "true" || text === "1");
const sandboxPath = "/v1/sandboxes/{id}";
const execPath = "/v1/sandboxes/{id}/execs/{exec_id}";

export const routes = {
  health: route({
    method: "get",
    path: "/healthz",
    summary: "Liveness; needs no token",
    status: 200,
    kind: "json",
    input: z.strictObject({}),
    output: healthSchema,
  }),
  version: route({
    method: "get",
    path: "/version",
    summary: "Version of the daemon",
    status: 200,
    kind: "json",
    input: z.strictObject({}),
    output: versionSchema,
  }),
  status: route({
    method: "get",
    path: "/v1/status",
    summary: "What the daemon holds",
    status: 200,
    kind: "json",
    input: z.strictObject({}),
    output: statusSchema,
  }),
  doctor: route({
    method: "get",
    path: "/v1/doctor",
    summary: "Check the host",
    status: 200,
    kind: "json",
    input: z.strictObject({}),
    output: doctorSchema,
  }),
  cleanup: route({
    method: "post",
    path: "/v1/cleanup",
    summary: "Remove what nothing refers to",
    status: 200,
    kind: "json",
    input: z.strictObject({ dry_run: z.boolean().default(false) }),
    output: cleanupSchema,
  }),
  shutdown: route({
    method: "post",
    path: "/v1/shutdown",
    summary: "Stop every sandbox and the daemon",
    status: 200,
    kind: "json",
    input: z.strictObject({}),
    output: z.object({ stopped: z.number() }),
  }),

  listSnapshots: route({
    method: "get",
    path: "/v1/snapshots",
    summary: "List snapshots",
    status: 200,
    kind: "json",
    input: z.strictObject({}),
    output: z.array(snapshotSchema),
  }),
  createSnapshot: route({
    method: "post",
    path: "/v1/snapshots",
    summary: "Build a snapshot from a recipe or a root file system; writes lines of progress",
    status: 201,
    kind: "events",
    input: createSnapshotSchema,
    output: buildEventSchema,
  }),
  snapshotInfo: route({
    method: "get",
    path: "/v1/snapshots/{tag}/info",
    summary: "Everything about a snapshot",
    status: 200,
    kind: "json",
    input: z.strictObject({ tag: tagSchema, verify: flag.optional() }),
    output: snapshotDetailSchema,
  }),
  removeSnapshot: route({
    method: "delete",
    path: "/v1/snapshots/{tag}",
    summary: "Remove a snapshot",
    status: 204,
    kind: "json",
    input: z.strictObject({ tag: tagSchema, force: flag.optional() }),
    output: none,
  }),

  listSandboxes: route({
    method: "get",
    path: "/v1/sandboxes",
    summary: "List sandboxes",
    status: 200,
    kind: "json",
    input: z.strictObject({
      tag: tagSchema.optional(),
      label: z.string().optional(),
      state: z.enum(["running", "dead"]).optional(),
    }),
    output: z.array(sandboxSchema),
  }),
  fork: route({
    method: "post",
    path: "/v1/sandboxes",
    summary: "Fork children from a snapshot; one entry per child, sandbox or error",
    status: 201,
    kind: "json",
    input: forkRequestSchema,
    output: forkResultSchema,
  }),
  killAll: route({
    method: "delete",
    path: "/v1/sandboxes",
    summary: "Kill all sandboxes that match; without a filter also end the VMM processes started ahead",
    status: 200,
    kind: "json",
    input: z.strictObject({ tag: tagSchema.optional(), label: z.string().optional() }),
    output: z.object({ killed: z.array(z.string()) }),
  }),
  getSandbox: route({
    method: "get",
    path: sandboxPath,
    summary: "One sandbox",
    status: 200,
    kind: "json",
    input: inSandbox,
    output: sandboxSchema,
  }),
  kill: route({
    method: "delete",
    path: sandboxPath,
    summary: "Kill a sandbox",
    status: 204,
    kind: "json",
    input: inSandbox,
    output: none,
  }),
  setTtl: route({
    method: "post",
    path: `${sandboxPath}/ttl`,
    summary: "Set the time to live from now; null removes it",
    status: 200,
    kind: "json",
    input: inSandbox.extend({ ttl_secs: z.int().min(1).max(31_536_000).nullable() }),
    output: sandboxSchema,
  }),
  ping: route({
    method: "post",
    path: `${sandboxPath}/ping`,
    summary: "Ask the agent for a sign of life",
    status: 200,
    kind: "json",
    input: inSandbox,
    output: z.object({ ok: z.boolean(), round_trip_ms: z.number() }),
  }),
  logs: route({
    method: "get",
    path: `${sandboxPath}/logs`,
    summary: "Console of the guest",
    status: 200,
    kind: "bytes",
    input: inSandbox.extend({ follow: flag.optional(), tail: z.coerce.number().int().min(1).optional() }),
    output: none,
  }),

  exec: route({
    method: "post",
    path: `${sandboxPath}/exec`,
    summary: "Run a command",
    status: 200,
    kind: "json",
    input: inSandbox.extend(execRequestSchema.shape),
    output: z.union([execResultSchema, execStartedSchema]),
    streamed: execEventSchema,
  }),
  listExecs: route({
    method: "get",
    path: `${sandboxPath}/execs`,
    summary: "Commands that run or have finished lately",
    status: 200,
    kind: "json",
    input: inSandbox,
    output: z.array(execInfoSchema),
  }),
  attachExec: route({
    method: "get",
    path: `${execPath}/stream`,
    summary: "Follow a command from given offsets",
    status: 200,
    kind: "events",
    input: inExec.extend({
      stdout_offset: z.coerce.number().int().min(0).default(0),
      stderr_offset: z.coerce.number().int().min(0).default(0),
    }),
    output: execEventSchema,
  }),
  execInput: route({
    method: "post",
    path: `${execPath}/input`,
    summary: "Write to stdin",
    status: 204,
    kind: "json",
    input: inExec.extend(execInputSchema.shape),
    output: none,
  }),
  execSignal: route({
    method: "post",
    path: `${execPath}/signal`,
    summary: "Signal the process group",
    status: 204,
    kind: "json",
    input: inExec.extend(execSignalSchema.shape),
    output: none,
  }),
  execResize: route({
    method: "post",
    path: `${execPath}/resize`,
    summary: "Resize the terminal",
    status: 204,
    kind: "json",
    input: inExec.extend(ptySizeSchema.shape),
    output: none,
  }),

  eval: route({
    method: "post",
    path: `${sandboxPath}/eval`,
    summary: "Run code in a warm interpreter",
    status: 200,
    kind: "json",
    input: inSandbox.extend(evalRequestSchema.shape),
    output: evalResultSchema,
    streamed: evalEventSchema,
  }),
  interrupt: route({
    method: "post",
    path: `${sandboxPath}/interrupt`,
    summary: "Interrupt the running eval",
    status: 204,
    kind: "json",
    input: inSandbox.extend({ language: languageSchema.optional() }),
    output: none,
  }),
  listContexts: route({
    method: "get",
    path: `${sandboxPath}/contexts`,
    summary: "Eval contexts",
    status: 200,
    kind: "json",
    input: inSandbox,
    output: z.array(contextSchema),
  }),
  dropContext: route({
    method: "delete",
    path: `${sandboxPath}/contexts/{name}`,
    summary: "Drop an eval context",
    status: 204,
    kind: "json",
    input: inSandbox.extend({ name: contextNameSchema, language: languageSchema.optional() }),
    output: none,
  }),

  readFile: route({
    method: "get",
    path: `${sandboxPath}/files`,
    summary: "Read a file",
    status: 200,
    kind: "bytes",
    input: inSandbox.extend(readQuerySchema.shape),
    output: none,
  }),
  writeFile: route({
    method: "put",
    path: `${sandboxPath}/files`,
    summary: "Write a file (atomic), or append",
    status: 200,
    kind: "upload",
    input: inSandbox.extend(writeQuerySchema.shape),
    output: fileEntrySchema,
  }),
  listFiles: route({
    method: "get",
    path: `${sandboxPath}/files/list`,
    summary: "List a directory",
    status: 200,
    kind: "json",
    input: inSandbox.extend(pathQuerySchema.shape),
    output: z.array(fileEntrySchema),
  }),
  statFile: route({
    method: "get",
    path: `${sandboxPath}/files/stat`,
    summary: "Facts of one file",
    status: 200,
    kind: "json",
    input: inSandbox.extend(statQuerySchema.shape),
    output: fileEntrySchema,
  }),
  makeDirectory: route({
    method: "post",
    path: `${sandboxPath}/files/mkdir`,
    summary: "Make a directory",
    status: 204,
    kind: "json",
    input: inSandbox.extend(mkdirSchema.shape),
    output: none,
  }),
  moveFile: route({
    method: "post",
    path: `${sandboxPath}/files/move`,
    summary: "Move or rename",
    status: 204,
    kind: "json",
    input: inSandbox.extend(moveSchema.shape),
    output: none,
  }),
  removeFile: route({
    method: "post",
    path: `${sandboxPath}/files/remove`,
    summary: "Remove a file or a tree",
    status: 204,
    kind: "json",
    input: inSandbox.extend(removeSchema.shape),
    output: none,
  }),
  chmodFile: route({
    method: "post",
    path: `${sandboxPath}/files/chmod`,
    summary: "Change permissions",
    status: 204,
    kind: "json",
    input: inSandbox.extend(chmodSchema.shape),
    output: none,
  }),
} as const;

export type Routes = typeof routes;
export type RouteName = keyof Routes;
export type RequestOf<N extends RouteName> = z.input<Routes[N]["input"]>;
export type ParsedOf<N extends RouteName> = z.output<Routes[N]["input"]>;
export type ResponseOf<N extends RouteName> = z.output<Routes[N]["output"]>;
