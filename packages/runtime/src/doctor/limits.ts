/** Which limits of sandboxes this host can enforce. */
import { limitNames, type AskedLimits, type Check } from "@forkd/contract";
import { notEnforceable } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";

export function limitsCheck(runtime: Pick<Runtime, "cgroups" | "engine" | "quota">): Check {
  const name = "limits";
  const every: AskedLimits = { best_effort: true };
  // Sandboxes have no network, so a missing network limit is not a defect of the host.
  for (const limit of limitNames) if (limit !== "net_bps") every[limit] = 1;
  const missing = notEnforceable(runtime, every);
  const { memory, cpu, pids } = runtime.cgroups.support;
  const groups = Object.entries({ memory, cpu, pids }).flatMap(([controller, support]) =>
    "version" in support ? [`${controller} (cgroup v${support.version})`] : [],
  );
  const held = [...groups, ...(runtime.engine.capabilities.diskLimits ? ["io and disk (engine)"] : [])];
  const detail = `held: ${held.join(", ") || "none"}`;
  if (missing.length === 0) return { name, outcome: "ok", detail };
  const needed = missing.filter(({ limit }) => limit in runtime.quota.defaultLimits);
  return {
    name,
    outcome: needed.length > 0 ? "fail" : "warn",
    detail: `${detail}; not held: ${missing.map(({ limit, reason }) => `${limit} (${reason})`).join(", ")}`,
    remedy:
      needed.length > 0
        ? `every sandbox is to have ${needed.map(({ limit }) => limit).join(", ")} by the settings, so none can be forked: run the daemon where it may make control groups (as root, or with systemd's Delegate=yes)`
        : "forks that ask for these limits are refused: run the daemon as root, or with systemd's Delegate=yes",
  };
}
