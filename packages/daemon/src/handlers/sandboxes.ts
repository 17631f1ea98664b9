import {
  branch,
  consoleLog,
  fork,
  getSandbox,
  kill,
  killAll,
  listSandboxes,
  pause,
  ping,
  resume,
  rewind,
  setTimeouts,
  setTtl,
} from "@forkd/runtime";
import type { Handlers } from "../router.ts";
import type { Daemon } from "./all.ts";

export function sandboxHandlers({ runtime }: Daemon) {
  return {
    listSandboxes: (input) => listSandboxes(runtime, input),
    fork: (input, context) => fork(runtime, input, context),
    getSandbox: (input) => getSandbox(runtime, input),
    kill: async (input) => {
      await kill(runtime, input);
    },
    killAll: (input) => killAll(runtime, input),
    setTtl: (input) => setTtl(runtime, input),
    setTimeouts: (input) => setTimeouts(runtime, input),
    branch: (input, context) => branch(runtime, input, context),
    pause: (input, context) => pause(runtime, input, context),
    resume: (input, context) => resume(runtime, input, context),
    rewind: (input, context) => rewind(runtime, input, context),
    ping: (input) => ping(runtime, input),
    logs: (input, context) => consoleLog(runtime, input, context),
  } satisfies Partial<Handlers>;
}
