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
} from "@forkd/runtime";
import { byAgeKey, pageOf } from "../http/answer/page.ts";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./all.ts";

export function sandboxHandlers({ runtime }: Daemon) {
  return {
    listSandboxes: ({ limit, cursor, ...filter }) =>
      pageOf(listSandboxes(runtime, filter), { limit, cursor }, byAgeKey),
    fork: (input, context) => fork(runtime, input, context),
    getSandbox: (input) => getSandbox(runtime, input),
    kill: async (input) => {
      await kill(runtime, input);
    },
    killAll: (input) => killAll(runtime, input),
    setTtl: (input) => setTimeouts(runtime, input),
    setTimeouts: (input) => setTimeouts(runtime, input),
    branch: (input, context) => branch(runtime, input, context),
    pause: (input, context) => pause(runtime, input, context),
    resume: (input, context) => resume(runtime, input, context),
    rewind: (input, context) => rewind(runtime, input, context),
    ping: (input) => ping(runtime, input),
    logs: (input, context) => consoleLog(runtime, input, context),
  } satisfies Partial<Handlers>;
}
