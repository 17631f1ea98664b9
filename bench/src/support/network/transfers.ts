/** Bytes between a guest and a server outside, through the proxy, and the daemon's latency meanwhile. */
import { readdirSync, readFileSync } from "node:fs";
import type { Sandbox } from "@forkd/sdk";
import { rest } from "../deadline.ts";
import { cpuSeconds } from "../processes.ts";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { VersionProbe } from "../version-probe.ts";
import { GuestClient } from "./guest.ts";
import { percentile, timed } from "./measure.ts";
import type { Outside } from "./outside.ts";
import { domain, serverPorts } from "./protocol.ts";

export const ways = ["raw down", "raw up", "http down", "http up"] as const;
export const agentWays = ["agent channel down", "agent channel up"] as const;

type Sizes = { bytes: number; agentBytes: number; rounds: number; idleMs: number };

/** The egress proxy of a daemon. */
function proxyOf(daemon: number): number {
  const children = readdirSync(`/proc/${daemon}/task`).flatMap((task) =>
    readFileSync(`/proc/${daemon}/task/${task}/children`, "latin1").trim().split(" "),
  );
  const isProxy = (pid: string) => readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("egress");
  const found = children.filter((pid) => pid !== "").find(isProxy);
  if (found === undefined) throw new Error("The daemon has no egress proxy");
  return Number(found);
}

/** Answers of `/version` while the work runs. */
async function probed(socket: string, work: () => Promise<unknown>): Promise<Record<string, number>> {
  const probe = new VersionProbe(socket);
  let latencies: number[] = [];
  try {
    await work();
  } finally {
    // Ends its thread, also if the work has failed.
    latencies = await probe.stop();
  }
  return {
    version_p50_ms: percentile(latencies, 0.5),
    version_p99_ms: percentile(latencies, 0.99),
    version_count: latencies.length,
  };
}

export async function measureTransfers(
  rows: Rows,
  daemon: ScratchDaemon,
  outside: Outside,
  tag: string,
  sizes: Sizes,
): Promise<void> {
  const name = `server.${domain}`;
  const rules = [`allow ${name}:${serverPorts.http},${serverPorts.raw}`];
  await using sandbox = await daemon.forkd.create(tag, { network: { mode: "filtered", rules } });
  const client = await GuestClient.open(sandbox);
  const address = await client.resolve(name);
  const call = (way: string, bytes: number) =>
    client.times(1, `lambda _: _${way.replace(" ", "_")}("${address}", "${name}", ${bytes})`);
  // The first bytes translate code of the guest.
  for (const way of ways) await call(way, Math.min(sizes.bytes, 20_000_000));
  const pids = {
    proxy: proxyOf(daemon.pid),
    vmm: sandbox.info.pid ?? 0,
    server: outside.pid,
    daemon: daemon.pid,
  };
  const measure = async (way: string, bytes: number, work: () => Promise<number>): Promise<void> => {
    const before = Object.entries(pids).map(([who, pid]) => [who, cpuSeconds(pid)] as const);
    let wallMs = 0;
    const version = await probed(daemon.socket, async () => (wallMs = await work()));
    const cpu = Object.fromEntries(
      before.map(([who, seconds]) => [who, cpuSeconds(pids[who as keyof typeof pids]) - seconds]),
    );
    const speed = bytes / 1e6 / (wallMs / 1000);
    const row = { case: way, n: 1, wall_ms: wallMs, bytes, mb_per_s: speed, ...version, cpu_seconds: cpu };
    rows.add(row, `${speed.toFixed(0)} MB/s`);
  };
  for (let round = 0; round < sizes.rounds; round++) {
    const idle = await probed(daemon.socket, () => rest(sizes.idleMs));
    rows.add({ case: "idle", n: 0, wall_ms: idle["version_p99_ms"] ?? 0, ...idle });
    for (const way of ways)
      await measure(way, sizes.bytes, async () => (await call(way, sizes.bytes))[0] ?? 0);
    const { agentBytes } = sizes;
    await measure("agent channel down", agentBytes, () =>
      timed(() => sandbox.files.write(agentFile, new Uint8Array(agentBytes))),
    );
    await measure("agent channel up", agentBytes, () => timed(() => readAll(sandbox)));
  }
}

const agentFile = "/dev/shm/bench";

async function readAll(sandbox: Sandbox): Promise<void> {
  // The content is not kept: only its way is measured.
  for await (const _ of sandbox.files.readStream(agentFile));
}
