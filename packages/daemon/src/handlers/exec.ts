/** Commands and evals: in one answer, as a stream, or in the background. */
import { evaluate, exec, startExec, streamEval, streamExec } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";

export function execHandlers({ runtime }: Pick<Daemon, "runtime">) {
  return {
    exec: (input, context) => {
      if (input.stream) return streamExec(runtime, input, context);
      return input.background ? startExec(runtime, input, context) : exec(runtime, input, context);
    },
    eval: (input, context) =>
      input.stream ? streamEval(runtime, input, context) : evaluate(runtime, input, context),
  } satisfies Partial<Handlers>;
}
