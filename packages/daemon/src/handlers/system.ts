/** The daemon itself. */
import { cleanup, closeSandboxes, doctor, status } from "@forkd/runtime";
import type { Handlers } from "../router.ts";
import type { Daemon } from "./all.ts";

export function systemHandlers({ runtime, version, stop, audit }: Daemon) {
  return {
    health: () => ({ ok: true }),
    version: () => ({ version, api: "v1", pid: process.pid }),
    status: async () => {
      const auditStatus = audit.status();
      return { ...(await status(runtime)), ...(auditStatus && { audit: auditStatus }) };
    },
    doctor: () => doctor(runtime),
    cleanup: (input) => cleanup(runtime, input),
    shutdown: async () => {
      const stopped = await closeSandboxes(runtime);
      stop();
      return { stopped };
    },
  } satisfies Partial<Handlers>;
}
