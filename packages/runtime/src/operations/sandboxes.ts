/** Sandboxes: list, describe, kill, ping. */
import { stat } from "node:fs/promises";
import { AppError, type ParsedOf, type SandboxInfo } from "@forkd/contract";
import { mapPool, roundMs, withDeadline } from "@forkd/base";
import type { Runtime } from "../runtime.ts";
import { matchingSandboxes, type SandboxFilter } from "../sandbox/matching.ts";
import type { SandboxHome } from "../sandbox/paths.ts";

const pingMs = 10_000;

/** Those that match, oldest first. */
export function listSandboxes(runtime: Pick<Runtime, "registry">, filter: SandboxFilter): SandboxInfo[] {
  return matchingSandboxes(runtime.registry, filter);
}

export function getSandbox(runtime: Pick<Runtime, "registry">, { id }: { id: string }): SandboxInfo {
  return runtime.registry.get(id).info();
}

export async function kill(runtime: Pick<Runtime, "registry">, { id }: { id: string }): Promise<void> {
  const { home } = runtime.registry.get(id);
  await runtime.registry.remove(id);
  await requireGone(id, home);
}

/** A later daemon would adopt a sandbox whose record is still there. */
async function requireGone(id: string, { recordPath }: SandboxHome): Promise<void> {
  const isThere = await stat(recordPath).then(
    () => true,
    () => false,
  );
  if (!isThere) return;
  throw new AppError(
    "internal",
    `Killed ${id}, but cannot remove ${recordPath}, so a restarted daemon would find the sandbox again`,
    { details: { id }, remedy: { action: "clean_up" } },
  );
}

/** Kills the sandboxes that match; without a filter also ends the processes that wait in the pool. */
export async function killAll(
  runtime: Pick<Runtime, "pool" | "registry">,
  filter: ParsedOf<"killAll">,
): Promise<{ killed: string[] }> {
  const ids = listSandboxes(runtime, filter).map(({ id }) => id);
  const homes = new Map<string, SandboxHome>();
  const killed = await mapPool(ids, 16, async (id) => {
    const sandbox = runtime.registry.find(id);
    if (sandbox === undefined) return undefined;
    homes.set(id, sandbox.home);
    await runtime.registry.remove(id);
    return id;
  });
  if (filter.tag === undefined && filter.label === undefined) await runtime.pool.empty();
  for (const [id, home] of homes) await requireGone(id, home);
  return { killed: killed.filter((id) => id !== undefined) };
}

export async function ping(
  runtime: Pick<Runtime, "registry">,
  { id }: { id: string },
): Promise<{ ok: boolean; round_trip_ms: number }> {
  const { agent } = runtime.registry.get(id);
  const start = performance.now();
  await withDeadline(
    agent.ping(),
    pingMs,
    () => new AppError("agent_unreachable", `The agent in ${id} did not answer within ${pingMs} ms`),
  );
  return { ok: true, round_trip_ms: roundMs(performance.now() - start) };
}
