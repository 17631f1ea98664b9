/** Which limits of sandboxes this host can enforce. */
import { limitNames, type AskedLimits, type Check } from "@forkd/contract";
import { notEnforceable } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";

export function limitsCheck(runtime: Pick<Runtime, "cgroups" | "engine" | "network" | "quota">): Check {
  const name = "limits";
  const every: AskedLimits = { best_effort: true };
  // Sandboxes have no network, so a missing network limit is not a defect of the host.
  for (const limit of limitNames) if (!limit.startsWith("net_")) every[limit] = 1;
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
        ? `Run the daemon as root, or with systemd's Delegate=yes: the settings give every sandbox ${needed.map(({ limit }) => limit).join(", ")}, so every fork is refused.`
        : "Run the daemon as root, or with systemd's Delegate=yes: forks that ask for these limits are refused.",
  };
}
