/** The daemon itself, its events and its metrics. */
import { closeSandboxes, doctor, listen, metricsText, saveWorkspaces, status, toCheck } from "@forkd/runtime";
import { placeFindings } from "../host/findings.ts";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./daemon.ts";

export function systemHandlers({ runtime, version, config, stop, audit, http }: Daemon) {
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
    shutdown: async ({ sandboxes: onStop = runtime.work.onStop, force = false }) => {
      // Throws if one cannot be saved; then the daemon keeps running.
      const saved = onStop === "stop" && !force ? await saveWorkspaces(runtime) : [];
      runtime.work.onStop = onStop;
      try {
        const closed = await closeSandboxes(runtime, { onStop, force });
        const names = [...saved, ...(closed.saved ?? [])];
        return {
          ...closed,
          stopped: closed.stopped + saved.length,
          ...(names.length > 0 && { saved: names }),
        };
      } finally {
        stop();
      }
    },
    events: ({ after, ...filter }, { lastEventId, signal, caller }) =>
      listen(runtime, { ...filter, after: lastEventId ?? after }, { signal, caller }),
    metrics: async () => metricsText(runtime, await http.all()),
  } satisfies Partial<Handlers>;
}
