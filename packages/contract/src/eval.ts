/** Code in the warm interpreters of a sandbox. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { outputFields, timeoutSecs } from "./exec.ts";
import { contextNameSchema, inSandbox, languageSchema, sandboxPath } from "./ids.ts";
import { contentBodyBytes, noAnswer, route } from "./route.ts";

const evalRequestSchema = z.strictObject({
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

const evalResultSchema = z.object({
  /** printed form of the value of the last expression; null if there is none */
  result: z.string().nullable(),
  /** the same as JSON, if it can be written as JSON */
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
  /** something is cut, or result_json is null because it is too large; truncated_parts says what */
  truncated: z.boolean(),
  truncated_parts: z
    .array(z.enum(["result", "result_json", "stdout", "stderr", "error", "traceback"]))
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
  z.object({ type: z.literal("result"), result: evalResultSchema }),
  errorEventSchema,
]);
export type EvalEvent = z.output<typeof evalEventSchema>;

const contextSchema = z.object({ name: z.string(), language: languageSchema });

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
