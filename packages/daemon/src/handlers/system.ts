/** The daemon itself. */
import { cleanup, closeSandboxes, doctor, status, toCheck } from "@forkd/runtime";
import { placeFindings } from "../host/findings.ts";
import type { Handlers } from "../http/router.ts";
import type { Daemon } from "./all.ts";

export function systemHandlers({ runtime, version, config, stop, audit }: Daemon) {
  return {
    health: () => ({ ok: true }),
    version: () => ({ version, api: "v1", pid: process.pid }),
    status: async () => {
      const auditStatus = audit.status();
      return { ...(await status(runtime)), ...(auditStatus && { audit: auditStatus }) };
    },
    doctor: async ({ boot = false }) => {
      const report = await doctor(runtime, { boot });
      const own = (await placeFindings(config.values, true)).map(toCheck);
      return {
        ...report,
        ok: report.ok && own.every(({ outcome }) => outcome !== "fail"),
        checks: [...report.checks, ...own],
      };
    },
    cleanup: (input) => cleanup(runtime, input),
    shutdown: async ({ sandboxes = runtime.work.onStop }) => {
      runtime.work.onStop = sandboxes;
      try {
        return await closeSandboxes(runtime, sandboxes);
      } finally {
        stop();
      }
    },
  } satisfies Partial<Handlers>;
}
