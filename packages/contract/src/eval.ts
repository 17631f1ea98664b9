/** Code in the warm interpreters of a sandbox. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { outputFields, timeoutSecs } from "./exec.ts";
import { contextNameSchema, envSchema, evalIdSchema, inSandbox, languageSchema, sandboxPath } from "./ids.ts";
import { contentBodyBytes, noAnswer, route } from "./route.ts";
import { displayParts } from "./wire/names.ts";

const evalRequestSchema = z.strictObject({
  code: z.string().max(8 * 1024 * 1024),
  /** default: the first language of the snapshot */
  language: languageSchema.optional(),
  context: contextNameSchema.default("default"),
  /** variables for this eval; their values before are restored after it */
  env: envSchema.default({}),
  /** 0 = no limit */
  timeout_secs: timeoutSecs.default(30),
  /** answer with lines of EvalEvent as they happen */
  stream: z.boolean().default(false),
});
export type EvalRequest = z.output<typeof evalRequestSchema>;

/**
 * One displayed object, or the value of the last expression, in every form that it has. Images and PDF are
 * base64. JSON forms are values.
 */
const displaySchema = z.object({
  /** the value of the last expression; otherwise the code displayed it */
  is_main_result: z.boolean(),
  text: z.string().optional(),
  html: z.string().optional(),
  markdown: z.string().optional(),
  svg: z.string().optional(),
  latex: z.string().optional(),
  javascript: z.string().optional(),
  png: z.string().optional(),
  jpeg: z.string().optional(),
  pdf: z.string().optional(),
  json: z.unknown().optional(),
  /** a table: its columns, each a list of values */
  data: z.record(z.string(), z.unknown()).optional(),
  /** the data of a figure: type, title, elements, and by type labels, ticks and scales */
  chart: z.record(z.string(), z.unknown()).optional(),
  /** forms of other MIME types, by type */
  extra: z.record(z.string(), z.unknown()).optional(),
  /** forms that are left out, or for text cut, because of their size */
  truncated_parts: z.array(z.enum(displayParts)).optional(),
});
export type EvalDisplay = z.output<typeof displaySchema>;

const errorInfoSchema = z.object({
  /** of the exception's class */
  name: z.string(),
  value: z.string(),
  /** from the outermost call to the place of the error; only code of the user, at most 100 */
  frames: z.array(
    z.object({
      file: z.string(),
      /** 0 if it is not known */
      line: z.number(),
      function: z.string(),
      /** the source line; empty if it is not known */
      text: z.string(),
    }),
  ),
});
export type EvalErrorInfo = z.output<typeof errorInfoSchema>;

const evalResultSchema = z.object({
  /** printed form of the value of the last expression; null if there is none */
  result: z.string().nullable(),
  /** the same as JSON, if it can be written as JSON */
  result_json: z.unknown(),
  /**
   * what the code displayed and the value of the last expression, in order; empty in a streamed eval, whose
   * `display` events have them
   */
  results: z.array(displaySchema),
  /** results that were left out because there were too many or they were too large in all */
  results_dropped: z.number().optional(),
  /** number of this eval in its context, from 1; absent if the interpreter does not count */
  execution_count: z.number().optional(),
  stdout: z.string(),
  stderr: z.string(),
  /** `Name: message` when the code raised */
  error: z.string().nullable(),
  traceback: z.string().nullable(),
  /** the exception as data, when the code raised and the interpreter describes it */
  error_info: errorInfoSchema.nullable(),
  /** 0, or 1 when the code raised */
  exit_code: z.number(),
  interrupted: z.boolean(),
  timed_out: z.boolean(),
  /** something is cut, or result_json is null because it is too large; truncated_parts says what */
  truncated: z.boolean(),
  truncated_parts: z
    .array(z.enum(["result", "result_json", "stdout", "stderr", "error", "traceback", "results"]))
    .optional(),
  /** bytes of the whole printed form, if result is cut */
  result_bytes: z.number().optional(),
  /** the interpreter had ended and was started again for this eval: earlier variables are gone */
  restarted: z.boolean(),
  /** why the warm-up did not succeed in the interpreter that was started again */
  warmup_error: z.string().optional(),
  language: languageSchema,
  context: z.string(),
  duration_ms: z.number(),
});
export type EvalResult = z.output<typeof evalResultSchema>;

/** One line of a streamed eval. `result` or `error` is the last. */
export const evalEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("stdout"), ...outputFields }),
  z.object({ type: z.literal("stderr"), ...outputFields }),
  /** a displayed object; the value of the last expression is the one with is_main_result */
  z.object({ type: z.literal("display"), display: displaySchema }),
  z.object({ type: z.literal("result"), result: evalResultSchema }),
  errorEventSchema,
]);
export type EvalEvent = z.output<typeof evalEventSchema>;

const contextSchema = z.object({
  name: z.string(),
  language: languageSchema,
  /** working directory; absent if the interpreter does not report it */
  cwd: z.string().optional(),
});
export type EvalContext = z.output<typeof contextSchema>;

const createContextSchema = z.strictObject({
  name: contextNameSchema,
  /** default: the first language of the snapshot */
  language: languageSchema.optional(),
  /** absolute; default: that of the interpreter after its warm-up */
  cwd: z
    .string()
    .max(4096)
    .regex(/^\/[^\0]*$/, "must be an absolute path")
    .optional(),
  /** variables during the evals of this context */
  env: envSchema.default({}),
});

const evalInfoSchema = z.object({
  eval_id: evalIdSchema,
  language: languageSchema,
  /** absent if it is not known, for instance after a restart of the daemon */
  context: z.string().optional(),
  state: z.enum(["running", "finished"]),
  /** whether a call reads its output; only others can be attached to */
  followed: z.boolean(),
});
export type EvalInfo = z.output<typeof evalInfoSchema>;

export const evalRoutes = {
  eval: route({
    method: "post",
    path: `${sandboxPath}/eval`,
    summary: "Run code in a warm interpreter",
    status: 200,
    kind: "json",
    scope: "run",
    audit: "command",
    idempotencyKey: { refused: "each call evaluates the code" },
    maxBodyBytes: contentBodyBytes,
    intoGuest: true,
    input: inSandbox.extend(evalRequestSchema.shape),
    output: evalResultSchema,
    streamed: evalEventSchema,
  }),
  interrupt: route({
    method: "post",
    path: `${sandboxPath}/interrupt`,
    summary: "Interrupt the running eval; with `context` only if it runs in that one",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend({
      language: languageSchema.optional(),
      context: contextNameSchema.optional(),
    }),
    output: noAnswer,
  }),
  listContexts: route({
    method: "get",
    path: `${sandboxPath}/contexts`,
    summary: "List eval contexts",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox,
    output: z.array(contextSchema),
  }),
  createContext: route({
    method: "post",
    path: `${sandboxPath}/contexts`,
    summary: "Make an eval context, which begins with what the warm-up defined",
    status: 201,
    kind: "json",
    scope: "run",
    idempotencyKey: {
      refused: "the name makes it safe to repeat: a second one is refused with already_exists",
    },
    intoGuest: true,
    input: inSandbox.extend(createContextSchema.shape),
    output: contextSchema,
  }),
  restartContext: route({
    method: "post",
    path: `${sandboxPath}/contexts/{name}/restart`,
    summary: "Make an eval context again, with the directory and variables it was made with",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend({ name: contextNameSchema, language: languageSchema.optional() }),
    output: contextSchema,
  }),
  listEvals: route({
    method: "get",
    path: `${sandboxPath}/evals`,
    summary: "Evals in progress, and those that a branch carried here until the next one ends",
    status: 200,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox,
    output: z.array(evalInfoSchema),
  }),
  attachEval: route({
    method: "get",
    path: `${sandboxPath}/evals/{eval_id}/stream`,
    summary: "Follow an eval that a branch carried here: output from the branch on, displays and result",
    status: 200,
    kind: "events",
    scope: "run",
    endless: true,
    intoGuest: true,
    input: inSandbox.extend({ eval_id: evalIdSchema }),
    output: evalEventSchema,
  }),
  dropContext: route({
    method: "delete",
    path: `${sandboxPath}/contexts/{name}`,
    summary: "Drop an eval context",
    status: 204,
    kind: "json",
    scope: "run",
    intoGuest: true,
    input: inSandbox.extend({ name: contextNameSchema, language: languageSchema.optional() }),
    output: noAnswer,
  }),
} as const;
