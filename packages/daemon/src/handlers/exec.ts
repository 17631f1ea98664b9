/** Commands and evals. */
import { AppError } from "@forkd/contract";
import {
  attachExec,
  dropContext,
  evaluate,
  exec,
  execInput,
  execResize,
  execSignal,
  interrupt,
  listContexts,
  listExecs,
  startExec,
  streamEval,
  streamExec,
} from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import { timed, timedStream } from "./timed.ts";
import type { Daemon } from "./all.ts";

export function execHandlers({ runtime }: Daemon) {
  const { execSeconds, evalSeconds } = runtime.metrics;
  return {
    exec: (input, context) => {
      if (input.background && input.stream) {
        throw new AppError("invalid_request", "Invalid request: stream and background exclude each other");
      }
      if (input.background) return startExec(runtime, input);
      return input.stream
        ? timedStream(execSeconds, streamExec(runtime, input, context))
        : timed(execSeconds, exec(runtime, input, context));
    },
    listExecs: (input) => listExecs(runtime, input),
    attachExec: (input, context) => attachExec(runtime, input, context),
    execInput: async (input) => {
      await execInput(runtime, input);
    },
    execSignal: async (input) => {
      await execSignal(runtime, input);
    },
    execResize: async (input) => {
      await execResize(runtime, input);
    },
    eval: (input, context) =>
      input.stream
        ? timedStream(evalSeconds, streamEval(runtime, input, context))
        : timed(evalSeconds, evaluate(runtime, input, context)),
    interrupt: (input) => interrupt(runtime, input) as undefined,
    listContexts: (input) => listContexts(runtime, input),
    dropContext: async (input) => {
      await dropContext(runtime, input);
    },
  } satisfies Partial<Handlers>;
}
