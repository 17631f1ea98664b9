/** Sandboxes: find, describe, kill, timeouts, pause, network. */
import { AppError, type SandboxInfo } from "@forkd/contract";
import { getSandbox, kill, pause, setNetwork, setTimeouts, type Runtime } from "@forkd/runtime";
import { unsupported, type Answer } from "./answer.ts";
import { detail } from "./describe.ts";
import { diskMibOf } from "./disk-size.ts";
import { policyOf } from "./network.ts";
import { parse } from "./parse.ts";
import type { Call, Plane } from "./plane.ts";
import type { E2bRecord } from "./records.ts";
import { networkUpdateSchema, pauseSchema, refreshSchema, timeoutSchema } from "./schemas.ts";

const done: Answer = { status: 204 };
/** How long E2B extends a sandbox if the request does not say it */
const refreshSecs = 60;

/** Throws `sandbox_not_found`, also for a sandbox that ended. */
export function aliveSandbox(runtime: Runtime, id: string): SandboxInfo {
  const info = getSandbox(runtime, { id });
  if (info.state !== "dead") return info;
  throw new AppError("sandbox_not_found", `Sandbox "${id}" has ended: ${info.reason ?? "it was stopped"}`, {
    details: { id },
  });
}

export function idOf({ parameters }: Call): string {
  return parameters["id"] ?? "";
}

export async function getInfo({ runtime, records, domain }: Plane, call: Call): Promise<Answer> {
  const info = aliveSandbox(runtime, idOf(call));
  const diskMib = await diskMibOf(runtime, info.snapshot_tag);
  return { status: 200, body: detail(info, records.get(info.id), { domain: domain(), diskMib }) };
}

export async function killSandbox({ runtime, records }: Plane, call: Call): Promise<Answer> {
  const id = idOf(call);
  refuseWorkspace(getSandbox(runtime, { id }), "kill");
  await kill(runtime, { id });
  await records.forget(id);
  return done;
}

function refuseWorkspace({ id, workspace }: SandboxInfo, action: string): void {
  if (workspace === undefined) return;
  throw new AppError("wrong_state", `Cannot ${action} "${id}": it is the workspace "${workspace}" of forkd`, {
    details: { id, workspace },
    remedy: { action: "delete_workspace", name: workspace },
  });
}

/** From now on, also if the sandbox would end later. */
export async function setTimeout({ runtime }: Plane, call: Call): Promise<Answer> {
  const info = aliveSandbox(runtime, idOf(call));
  const { id } = info;
  refuseWorkspace(info, "limit the life of");
  const { timeout } = parse(timeoutSchema, call.body);
  await setTimeouts(runtime, { id, ttl_secs: timeout });
  return done;
}

export async function refresh({ runtime }: Plane, call: Call): Promise<Answer> {
  const info = aliveSandbox(runtime, idOf(call));
  const { duration } = parse(refreshSchema, call.body);
  await extend(runtime, info, duration ?? refreshSecs);
  return done;
}

/** Never shortens the life of a sandbox. */
export async function extend(runtime: Runtime, info: SandboxInfo, seconds: number): Promise<SandboxInfo> {
  const end = info.state === "paused" ? 0 : (info.expires_at_unix ?? Infinity);
  if (end >= Date.now() / 1000 + seconds) return info;
  return setTimeouts(runtime, { id: info.id, ttl_secs: seconds });
}

export async function pauseSandbox({ runtime }: Plane, call: Call): Promise<Answer> {
  const info = aliveSandbox(runtime, idOf(call));
  const { memory } = parse(pauseSchema, call.body);
  if (memory === false) throw unsupported("memory: false", "a paused sandbox keeps its memory");
  if (info.state === "paused")
    throw new AppError("wrong_state", `Sandbox "${info.id}" is paused already`, { details: { id: info.id } });
  await pause(runtime, { id: info.id }, call.context);
  return done;
}

/** Replaces all that was set before; what is left out is cleared. */
export async function updateNetwork({ runtime, records }: Plane, call: Call): Promise<Answer> {
  const { id } = aliveSandbox(runtime, idOf(call));
  const { allow_internet_access: internet, ...network } = parse(networkUpdateSchema, call.body);
  const { mode, rules } = policyOf({ internet, network });
  await setNetwork(runtime, { id, mode, rules, add: [], remove: [] }, call.context);
  const record = records.get(id);
  if (record) await records.set({ ...record, ...shownNetwork(network, internet, record) });
  return done;
}

/** The part of a record that getInfo() shows. Who may reach the ports does not change with an update. */
export function shownNetwork(
  network: { allowOut?: unknown; denyOut?: unknown; allowPublicTraffic?: unknown } | null | undefined,
  internet: boolean | null | undefined,
  before?: E2bRecord,
): Pick<E2bRecord, "network" | "allow_internet_access"> {
  const given = Object.fromEntries(
    [
      ["allowOut", network?.allowOut],
      ["denyOut", network?.denyOut],
      ["allowPublicTraffic", before ? before.has_public_ports : network?.allowPublicTraffic],
    ].filter(([, value]) => value !== undefined && value !== null),
  ) as Record<string, unknown>;
  return { network: given, allow_internet_access: internet ?? true };
}
