/** The daemon itself. */
import { cleanup, doctor, kill, listSandboxes, status } from "@forkd/runtime";
import type { Handlers } from "../router.ts";
import type { Daemon } from "./all.ts";

export function systemHandlers({ runtime, version, stop }: Daemon) {
  return {
    health: () => ({ ok: true }),
    version: () => ({ version, api: "v1", pid: process.pid }),
    status: () => status(runtime),
    doctor: () => doctor(runtime),
    cleanup: (input) => cleanup(runtime, input),
    shutdown: async () => {
      const running = listSandboxes(runtime, { state: "running" });
      const ends = await Promise.allSettled(running.map(({ id }) => kill(runtime, { id })));
      stop();
      return { stopped: ends.filter((end) => end.status === "fulfilled").length };
    },
  } satisfies Partial<Handlers>;
}
