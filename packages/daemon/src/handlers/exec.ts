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
import type { Handlers } from "../http/router.ts";
import type { Daemon } from "./all.ts";

export function execHandlers({ runtime }: Daemon) {
  return {
    exec: (input, context) => {
      if (input.background && input.stream) {
        throw new AppError("invalid_request", "Invalid request: stream and background exclude each other");
      }
      if (input.background) return startExec(runtime, input, context);
      return input.stream ? streamExec(runtime, input, context) : exec(runtime, input, context);
    },
    listExecs: (input, context) => listExecs(runtime, input, context),
    attachExec: (input, context) => attachExec(runtime, input, context),
    execInput: async (input, context) => {
      await execInput(runtime, input, context);
    },
    execSignal: async (input, context) => {
      await execSignal(runtime, input, context);
    },
    execResize: async (input, context) => {
      await execResize(runtime, input, context);
    },
    eval: (input, context) =>
      input.stream ? streamEval(runtime, input, context) : evaluate(runtime, input, context),
    interrupt: async (input, context) => {
      await interrupt(runtime, input, context);
    },
    listContexts: (input, context) => listContexts(runtime, input, context),
    dropContext: async (input, context) => {
      await dropContext(runtime, input, context);
    },
  } satisfies Partial<Handlers>;
}
