/** Runs code and streams what it does. */
import { AppError, fromErrorBody, toAppError, type EvalEvent } from "@forkd/contract";
import { streamEval, streamExec } from "@forkd/runtime";
import { z } from "zod";
import { accountOf, type EnvdCall } from "../envd/call.ts";
import { CodeContexts, defaultTarget, languageOf } from "./contexts.ts";
import type { LineWriter } from "./lines.ts";
import { errorLine, resultLine } from "./result.ts";

const envSchema = z.record(
  z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "is not a name of a variable"),
  z.string().refine((value) => !value.includes("\0"), "must not contain NUL"),
);

export const executeSchema = z.object({
  code: z.string().max(8 * 1024 * 1024),
  context_id: z.string().optional(),
  language: z.string().optional(),
  env_vars: envSchema.default({}),
});
type ExecuteRequest = z.output<typeof executeSchema>;

/** Writes the lines of one execution. */
type Execution = (lines: LineWriter) => Promise<void>;

/** Begins an execution. Throws what the client must get as a status; later failures are lines. */
export async function execute(
  call: EnvdCall,
  request: ExecuteRequest,
  contexts: CodeContexts,
): Promise<Execution> {
  const { context_id: id, language, code, env_vars: env } = request;
  if (id !== undefined && language !== undefined)
    throw new AppError("invalid_request", 'Only one of "context_id" and "language" can be given');
  call.context.note?.({ code });
  if (language?.toLowerCase() === "bash") return executeBash(call, code, env);
  const target = id === undefined ? defaultTarget(languageOf(language)) : await contexts.find(call, id);
  const events = await streamEval(
    call.runtime,
    // No limit: clients abort the request, which interrupts the code.
    { id: call.id, code, env, ...target, timeout_secs: 0, stream: true },
    call.context,
  );
  return (lines) => writeEvents(events, lines);
}

async function writeEvents(events: AsyncIterable<EvalEvent>, lines: LineWriter): Promise<void> {
  for await (const event of events) {
    if (event.type === "stdout" || event.type === "stderr")
      await lines.output(event.type, Buffer.from(event.data, event.encoding));
    else if (event.type === "display") await lines.line(resultLine(event.display));
    else if (event.type === "error") throw fromErrorBody(event);
    else {
      await lines.finish();
      const error = errorLine(event.result);
      if (error) await lines.line(error);
      const { execution_count } = event.result;
      if (execution_count !== undefined) await lines.line({ type: "number_of_executions", execution_count });
    }
  }
}

/** There is no interpreter of bash that stays: each execution is its own shell. */
async function executeBash(call: EnvdCall, code: string, env: Record<string, string>): Promise<Execution> {
  const { name } = await accountOf(call);
  const events = await streamExec(
    call.runtime,
    {
      id: call.id,
      args: ["/bin/bash", "-c", code],
      env,
      user: name,
      timeout_secs: 0,
      stdin_open: false,
      stream: true,
      background: false,
    },
    call.context,
  ).catch((error: unknown) => {
    const failure = toAppError(error);
    throw failure.code === "guest_refused"
      ? new AppError("unsupported", failure.message, { cause: error })
      : error;
  });
  return async (lines) => {
    for await (const event of events) {
      if (event.type === "stdout" || event.type === "stderr")
        await lines.output(event.type, Buffer.from(event.data, event.encoding));
      else if (event.type === "error") throw fromErrorBody(event);
      else if (event.type === "exit") {
        await lines.finish();
        const value = event.signal ?? `exit status ${event.exit_code}`;
        if (event.exit_code !== 0)
          await lines.line({ type: "error", name: "ExitError", value, traceback: "" });
      }
    }
  };
}
