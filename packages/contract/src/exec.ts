/** Commands and evals in a sandbox. */
import { z } from "zod";
import { errorBodySchema } from "./error-body.ts";
import { signalNames } from "./names.ts";
import { contextNameSchema, envSchema, languageSchema } from "./ids.ts";

const noNul = (text: string) => !text.includes("\0");
const argument = z.string().max(131_072).refine(noNul, "must not contain NUL");
const timeoutSecs = z.number().min(0).max(31_536_000);
export const ptySizeSchema = z.strictObject({
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
  /** text given to the command as its input, then end of file */
  stdin: z
    .string()
    .max(16 * 1024 * 1024)
    .optional(),
  /** leave stdin open for /input calls (streamed and background commands) */
  stdin_open: z.boolean().default(false),
  pty: ptySizeSchema.optional(),
  /** answer with lines of ExecEvent as they happen */
  stream: z.boolean().default(false),
  /** answer at once; the command goes on and can be attached to */
  background: z.boolean().default(false),
});
export type ExecRequest = z.output<typeof execRequestSchema>;

export const execResultSchema = z.object({
  exec_id: z.number(),
  stdout: z.string(),
  stderr: z.string(),
  /** 128 + signal if a signal ended it */
  exit_code: z.number(),
  signal: z.string().optional(),
  timed_out: z.boolean(),
  /** output was longer than this answer may be */
  truncated: z.boolean(),
  duration_ms: z.number(),
});
export type ExecResult = z.output<typeof execResultSchema>;

export const execStartedSchema = z.object({ exec_id: z.number(), pid: z.number() });

const outputFields = {
  /** position of the first byte in this stream */
  offset: z.number(),
  data: z.string(),
  encoding: z.enum(["utf8", "base64"]),
};
const errorEvent = z.object({ type: z.literal("error"), ...errorBodySchema.shape });

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
  errorEvent,
]);
export type ExecEvent = z.output<typeof execEventSchema>;

export const execInfoSchema = z.object({
  exec_id: z.number(),
  pid: z.number(),
  state: z.enum(["running", "finished"]),
  command: z.string(),
  stdout_bytes: z.number(),
  stderr_bytes: z.number(),
  exit_code: z.number().optional(),
});
export type ExecInfo = z.output<typeof execInfoSchema>;

export const execInputSchema = z.strictObject({
  data: z
    .string()
    .max(1024 * 1024)
    .default(""),
  encoding: z.enum(["utf8", "base64"]).default("utf8"),
  /** close stdin after the data */
  eof: z.boolean().default(false),
});

export const execSignalSchema = z.strictObject({ signal: z.enum(signalNames).default("SIGTERM") });

export const evalRequestSchema = z.strictObject({
  code: z.string().max(8 * 1024 * 1024),
  /** default: the first language of the snapshot */
  language: languageSchema.optional(),
  context: contextNameSchema.default("default"),
  /** 0 = no limit */
  timeout_secs: timeoutSecs.default(30),
  /** answer with lines of EvalEvent as they happen */
  stream: z.boolean().default(false),
});
export type EvalRequest = z.output<typeof evalRequestSchema>;

export const evalResultSchema = z.object({
  /** printed form of the value of the last expression; null if there is none */
  result: z.string().nullable(),
  /** the same as JSON where it has such a form */
  result_json: z.unknown(),
  stdout: z.string(),
  stderr: z.string(),
  /** `Name: message` when the code raised */
  error: z.string().nullable(),
  traceback: z.string().nullable(),
  /** 0, or 1 when the code raised */
  exit_code: z.number(),
  interrupted: z.boolean(),
  timed_out: z.boolean(),
  truncated: z.boolean(),
  language: languageSchema,
  context: z.string(),
  duration_ms: z.number(),
});
export type EvalResult = z.output<typeof evalResultSchema>;

/** One line of a streamed eval. `result` or `error` is the last. */
export const evalEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("stdout"), ...outputFields }),
  z.object({ type: z.literal("stderr"), ...outputFields }),
  z.object({ type: z.literal("result"), result: evalResultSchema }),
  errorEvent,
]);
export type EvalEvent = z.output<typeof evalEventSchema>;

export const contextSchema = z.object({ name: z.string(), language: languageSchema });
