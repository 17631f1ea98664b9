/** Usage of sandboxes, as clients ask for it. */
import { invalid, type Answer } from "./answer.ts";
import type { Sample } from "./metrics-history.ts";
import type { Call, Plane } from "./plane.ts";
import { aliveSandbox, idOf } from "./sandboxes.ts";

const maxIds = 100;

export async function getMetrics(plane: Plane, call: Call): Promise<Answer> {
  const info = aliveSandbox(plane.runtime, idOf(call));
  const start = timeOf(call, "start") ?? -Infinity;
  const end = timeOf(call, "end") ?? Infinity;
  // The clock of clients has whole seconds.
  if (end < Math.floor(info.created_at_unix)) return { status: 200, body: [] };
  const samples = await plane.metrics.of(plane.runtime, info, call.context);
  return {
    status: 200,
    body: samples.filter(({ timestampUnix: at }) => at >= start && at <= end),
  };
}

/** The last measurement of each of some sandboxes. */
export async function metricsOfAll(plane: Plane, call: Call): Promise<Answer> {
  const ids = (call.query.get("sandbox_ids") ?? "").split(",").filter((id) => id !== "");
  if (ids.length === 0 || ids.length > maxIds) throw invalid("sandbox_ids", `must be 1 to ${maxIds} ids`);
  const sandboxes: Record<string, Sample> = {};
  for (const id of ids) {
    const info = plane.runtime.registry.find(id)?.info();
    const last = info && (await plane.metrics.of(plane.runtime, info, call.context)).at(-1);
    if (last) sandboxes[id] = last;
  }
  return { status: 200, body: { sandboxes } };
}

function timeOf({ query }: Call, name: "start" | "end"): number | undefined {
  const text = query.get(name);
  if (text === null || text === "") return undefined;
  if (!/^\d{1,12}$/.test(text)) throw invalid(name, "must be seconds of Unix time");
  return Number(text);
}
