/** Events, usage of sandboxes, metrics. */
import { Counter, exposition, Gauge, type Metric } from "@forkd/base";
import type { EventsRequest, ParsedOf, SandboxInfo, SandboxStats, Stats } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { Listener } from "../observe/events.ts";
import type { UsageSample } from "../observe/usage.ts";
import type { Runtime } from "../runtime.ts";
import { matchingSandboxes } from "../sandbox/matching.ts";
import { forkdVersion } from "../version.ts";

/** maximum age of measurements: for a person who looks, and for a program that polls */
const statsAgeMs = 1000;
const metricsAgeMs = 10_000;
const diskAgeMs = 60_000;

export function listen(
  runtime: Pick<Runtime, "events">,
  { after, ...filter }: EventsRequest,
  { signal, caller }: Pick<Context, "signal" | "caller">,
): Listener {
  return runtime.events.listen(filter, { after, signal, owner: caller?.name });
}

export async function stats(
  runtime: Pick<Runtime, "registry" | "usage">,
  filter: ParsedOf<"stats">,
): Promise<Stats> {
  const sample = await runtime.usage.sandboxes.fresh(statsAgeMs);
  const sandboxes = matchingSandboxes(runtime.registry, filter)
    .filter(({ id }) => sample.byId.has(id))
    .map((info) => describe(info, sample));
  return { sampled_at_unix: sample.atMs / 1000, sandboxes };
}

function describe(info: SandboxInfo, { byId, atMs }: UsageSample): SandboxStats {
  const usage = byId.get(info.id);
  const at = (usage?.atMs ?? atMs) / 1000;
  // A machine that was started after the measurement is not in it.
  const live = usage !== undefined && info.pid !== undefined && usage.pid === info.pid ? usage : undefined;
  return {
    id: info.id,
    snapshot_tag: info.snapshot_tag,
    state: info.state,
    ...(info.workspace !== undefined && { workspace: info.workspace }),
    ...(info.owner !== undefined && { owner: info.owner }),
    ...(info.pid !== undefined && { pid: info.pid }),
    uptime_secs: Math.max(0, Date.now() / 1000 - info.created_at_unix),
    ...(live?.cpuSeconds !== undefined && { cpu_seconds: live.cpuSeconds }),
    ...(live?.memory && {
      private_bytes: live.memory.privateBytes,
      shared_bytes: live.memory.sharedBytes,
      pss_bytes: live.memory.pssBytes,
    }),
    disk_bytes: usage?.diskBytes ?? 0,
    sampled_at_unix: at,
  };
}

/** In the text format of Prometheus. `more` are metrics of the caller. */
export async function metricsText(runtime: Runtime, more: readonly Metric[] = []): Promise<string> {
  const all = [...(await gauges(runtime)), ...runtime.metrics.all, ...networkMetrics(runtime.network)];
  return exposition([...all, ...more]);
}

/** The proxy counts, and reports its sums about once a second. */
function networkMetrics({ totals }: Runtime["network"]): Metric[] {
  const counter = (name: string, help: string, counted: readonly [Record<string, string>, number][]) => {
    const metric = new Counter(name, help);
    for (const [labels, value] of counted) metric.add(labels, value);
    return metric;
  };
  return [
    counter("forkd_network_connections_total", "Connections of guests to the outside", [
      [{}, totals.connections],
    ]),
    counter("forkd_network_denied_total", "Connections and look-ups of guests that rules denied", [
      [{}, totals.denied],
    ]),
    counter("forkd_network_bytes_total", "Bytes that guests exchanged with the outside, by direction", [
      [{ direction: "sent" }, totals.bytesOut],
      [{ direction: "received" }, totals.bytesIn],
    ]),
  ];
}

const states = ["running", "paused", "dead"] as const;

async function gauges(runtime: Runtime): Promise<Metric[]> {
  const [snapshots, usage, disk] = await Promise.all([
    runtime.store.list(),
    runtime.usage.sandboxes.known(metricsAgeMs),
    runtime.usage.disk.known(diskAgeMs),
  ]);
  const { live } = runtime.registry;
  const all = runtime.registry.all();
  const memory = [...usage.byId.values()].flatMap(({ memory: each }) => each ?? []);
  const plain = (name: string, help: string, value: number) => new Gauge(name, help, () => [[{}, value]]);
  return [
    new Gauge("forkd_build_info", "Version of the daemon; always 1", () => [[{ version: forkdVersion }, 1]]),
    plain("forkd_snapshots_total", "Snapshots", snapshots.length),
    plain("forkd_sandboxes_active", "Running sandboxes", live),
    new Gauge("forkd_sandboxes", "Sandboxes, by state", () =>
      states.map((state) => [{ state }, all.filter((sandbox) => sandbox.state === state).length] as const),
    ),
    plain("forkd_branches_in_flight", "Branches in progress", runtime.branches.all.length),
    plain("forkd_branch_concurrency_cap", "Maximum number of branches in progress", runtime.branches.limit),
    plain(
      "forkd_pool_ready",
      "Children that are ready to be handed out",
      Object.values(runtime.pool.counts()).reduce((sum, count) => sum + count, 0),
    ),
    plain(
      "forkd_pool_bytes",
      "Memory that ready children are expected to use",
      runtime.pool.usedMib * 1024 * 1024,
    ),
    plain("forkd_port_connections", "Connections to ports of guests", runtime.ports.connections),
    plain("forkd_event_streams", "Open streams of events", runtime.events.listeners),
    new Gauge(
      "forkd_memory_bytes",
      "Memory of all VMM processes; what is shared counts once per process",
      () => [
        [{ kind: "shared" }, memory.reduce((sum, each) => sum + each.sharedBytes, 0)],
        [{ kind: "private" }, memory.reduce((sum, each) => sum + each.privateBytes, 0)],
        [{ kind: "proportional" }, memory.reduce((sum, each) => sum + each.pssBytes, 0)],
      ],
    ),
    new Gauge("forkd_disk_bytes", "Bytes on disk below the data directory, and what is free there", () =>
      (["snapshots", "sandboxes", "cache", "images", "free"] as const).map(
        (kind) => [{ kind }, disk[kind]] as const,
      ),
    ),
  ];
}
