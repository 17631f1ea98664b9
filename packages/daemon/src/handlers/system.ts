/** The daemon itself. */
import { cleanup, closeSandboxes, doctor, status } from "@forkd/runtime";
import type { Handlers } from "../router.ts";
import type { Daemon } from "./all.ts";

export function systemHandlers({ runtime, version, stop }: Daemon) {
  return {
    health: () => ({ ok: true }),
    version: () => ({ version, api: "v1", pid: process.pid }),
    status: () => status(runtime),
    doctor: () => doctor(runtime),
    cleanup: (input) => cleanup(runtime, input),
    shutdown: async ({ sandboxes = runtime.onStop }) => {
      runtime.onStop = sandboxes;
      const closed = await closeSandboxes(runtime, sandboxes);
      stop();
      return closed;
    },
  } satisfies Partial<Handlers>;
}
