/** Commands in a sandbox. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { envSchema, execIdSchema, inSandbox, sandboxPath } from "./ids.ts";
import { contentBodyBytes, noAnswer, queryFlag, route } from "./route.ts";
import { serviceNamePattern, signalNames } from "./wire/names.ts";

const noNul = (text: string) => !text.includes("\0");
const argument = z.string().max(131_072).refine(noNul, "must not contain NUL");
export const timeoutSecs = z.number().min(0).max(31_536_000);
const ptySizeSchema = z.strictObject({
  rows: z.int().min(1).max(65535).default(24),
  cols: z.int().min(1).max(65535).default(80),
});

export const execRequestSchema = z.strictObject({
  /** program and arguments; no shell */
  args: z.array(argument).min(1, "must name a program").max(4096),
  env: envSchema.default({}),
  cwd: argument.optional(),
  /** name, uid, name:group or uid:gid; default root */
  user: z.string().max(128).optional(),
  /** 0 = no limit; the default is 30, or no limit for background and streamed commands */
  timeout_secs: timeoutSecs.optional(),
  /** input of the command, followed by end of file */
  stdin: z
    .string()
    .max(16 * 1024 * 1024)
    .optional(),
  /** leave stdin open for /input calls (streamed and background commands) */
  stdin_open: z.boolean().default(false),
  pty: ptySizeSchema.optional(),
  /** answer with lines of ExecEvent as they happen */
  stream: z.boolean().default(false),
  /** answer at once, or with the events; the command keeps running without its caller and can be attached to */
  background: z.boolean().default(false),
});
export type ExecRequest = z.output<typeof execRequestSchema>;

const execResultSchema = z.object({
  exec_id: z.number(),
  stdout: z.string(),
  stderr: z.string(),
  /** 128 + signal if a signal ended it */
  exit_code: z.number(),
  signal: z.string().optional(),
  timed_out: z.boolean(),
  /** output was longer than an answer may be; the rest was dropped */
  truncated: z.boolean(),
  duration_ms: z.number(),
});
export type ExecResult = z.output<typeof execResultSchema>;

const execStartedSchema = z.object({ exec_id: z.number(), pid: z.number() });

export const outputFields = {
  /** position of the first byte in this stream */
  offset: z.number(),
  data: z.string(),
  encoding: z.enum(["utf8", "base64"]),
};
/** One line of a streamed command. `exit` or `error` is the last. */
export const execEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("started"), exec_id: z.number(), pid: z.number() }),
  z.object({ type: z.literal("stdout"), ...outputFields }),
  z.object({ type: z.literal("stderr"), ...outputFields }),
  z.object({
    type: z.literal("exit"),
    exit_code: z.number(),
    signal: z.string().optional(),
    timed_out: z.boolean(),
    duration_ms: z.number(),
  }),
  errorEventSchema,
]);
export type ExecEvent = z.output<typeof execEventSchema>;

const execInfoSchema = z.object({
  exec_id: z.number(),
  pid: z.number(),
  state: z.enum(["running", "finished"]),
  /** the program */
  command: z.string(),
  /** program and arguments, cut after 512 bytes; absent if the guest does not report them */
  args: z.array(z.string()).optional(),
  /** seconds since its start, by the clock of the guest; absent if the guest does not report it */
  age_secs: z.number().optional(),
  /** whether its stdin was opened for input */
  stdin_open: z.boolean().optional(),
  /** whether it has a terminal */
  pty: z.boolean().optional(),
  stdout_bytes: z.number(),
  stderr_bytes: z.number(),
  exit_code: z.number().optional(),
});
export type ExecInfo = z.output<typeof execInfoSchema>;

const serviceInfoSchema = z.object({
  name: z.string(),
  state: z.enum(["running", "exited"]),
  exec_id: z.number(),
  pid: z.number(),
  command: z.string(),
  /** bytes written so far, in the parent too; the guest keeps the last 256 KiB of each */
  stdout_bytes: z.number(),
  stderr_bytes: z.number(),
  exit_code: z.number().optional(),
});
export type ServiceInfo = z.output<typeof serviceInfoSchema>;

const execInputSchema = z.strictObject({
  data: z
    .string()
    .max(1024 * 1024)
    .default(""),
  encoding: z.enum(["utf8", "base64"]).default("utf8"),
  /** close stdin after the data */
  eof: z.boolean().default(false),
});

const execSignalSchema = z.strictObject({ signal: z.enum(signalNames).default("SIGTERM") });

/** One piece of input, even if every character is an escape */
const inputBodyBytes = 8 * 1024 * 1024;
const inExec = inSandbox.extend({ exec_id: execIdSchema });
const serviceNameSchema = z
  .string()
  .regex(serviceNamePattern, "must be 1 to 64 of letters, digits, dot, underscore and dash")
  .meta({ description: "Name of a service" });
const execPath = `${sandboxPath}/execs/{exec_id}` as const;

export const execRoutes = {
  exec: route({
    method: "post",
    path: `${sandboxPath}/exec`,
    summary: "Run a command",
    status: 200,
    kind: "json",
    scope: "run",
    audit: "command",
    idempotencyKey: {
      refused: "each call runs the command; run it in the background and look for it in the list of commands",
    },
    maxBodyBytes: contentBodyBytes,
    intoGuest: true,
    input: inSandbox.extend(execRequestSchema.shape),
    output: z.union([execResultSchema, execStartedSchema]),
    streamed: execEventSchema,
  }),
  listExecs: route({
    method: "get",
    path: `${sandboxPath}/execs`,
    summary: "Commands that run or have finished recently",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox,
    output: z.array(execInfoSchema),
  }),
  attachExec: route({
    method: "get",
    path: `${execPath}/stream`,
    summary: "Follow a command from given offsets",
    status: 200,
    kind: "events",
    scope: "run",
    endless: true,
    intoGuest: true,
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
    scope: "run",
    maxBodyBytes: inputBodyBytes,
    intoGuest: true,
    input: inExec.extend(execInputSchema.shape),
    output: noAnswer,
  }),
  execSignal: route({
    method: "post",
    path: `${execPath}/signal`,
    summary: "Signal the process group",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inExec.extend(execSignalSchema.shape),
    output: noAnswer,
  }),
  execResize: route({
    method: "post",
    path: `${execPath}/resize`,
    summary: "Resize the terminal",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inExec.extend(ptySizeSchema.shape),
    output: noAnswer,
  }),
  listServices: route({
    method: "get",
    path: `${sandboxPath}/services`,
    summary: "Services that the recipe of the snapshot started",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox,
    output: z.array(serviceInfoSchema),
  }),
  serviceLogs: route({
    method: "get",
    path: `${sandboxPath}/services/{name}/logs`,
    summary: "Output of a service, from its start in the parent on",
    status: 200,
    kind: "bytes",
    scope: "run",
    endless: true,
    intoGuest: true,
    input: inSandbox.extend({
      name: serviceNameSchema,
      follow: queryFlag.optional(),
      tail: z.coerce.number().int().min(1).optional(),
    }),
    output: noAnswer,
  }),
} as const;
