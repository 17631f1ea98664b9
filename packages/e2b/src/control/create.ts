/** New sandboxes, connections to existing ones, and forks of them. */
import { AppError, forkRequestSchema, fromErrorBody, isSandbox } from "@forkd/contract";
import type { AskedNetwork, ForkEntry } from "@forkd/contract";
import type { SandboxInfo } from "@forkd/contract";
import { branch, fork, kill, resume, setTimeouts, type Runtime } from "@forkd/runtime";

import { errorBody, invalid, unsupported, type Answer } from "./answer.ts";
import { connection } from "./describe.ts";
import { labelsOf } from "./labels.ts";
import { policyOf } from "./network.ts";
import { parse } from "./parse.ts";
import type { Call, Plane } from "./plane.ts";
import { newToken, type E2bRecord } from "./records.ts";
import { aliveSandbox, extend, idOf, shownNetwork } from "./sandboxes.ts";
import { connectSchema, createSchema, forkSchema, type CreateRequest } from "./schemas.ts";

/** E2B's own default */
const defaultTimeoutSecs = 300;
const variableName = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;

export async function createSandbox(plane: Plane, call: Call): Promise<Answer> {
  const { runtime, records } = plane;
  const asked = parse(createSchema, call.body);
  refuseUnsupported(asked);
  const template = plane.names.resolve(asked.templateID);
  const env = { ...template.env, ...envOf(asked.envVars ?? {}) };
  const network = connectable(runtime, policyOf({ internet: asked.allow_internet_access, ...asked }), asked);
  const request = {
    snapshot_tag: template.tag,
    n: 1,
    labels: labelsOf(asked.metadata ?? {}),
    env: { E2B_SANDBOX: "true", E2B_TEMPLATE_ID: template.id, ...env },
    vary: [],
    ttl_secs: asked.timeout ?? defaultTimeoutSecs,
    on_timeout: asked.autoPause ? ("pause" as const) : ("kill" as const),
    auto_resume: asked.autoResume?.enabled ?? false,
    ...(network && { network }),
    prewarm: false,
    live_fork: false,
  };
  const [entry] = await fork(runtime, parse(forkRequestSchema, request), call.context).catch(
    (error: unknown) => {
      throw plane.names.explain(asked.templateID, error);
    },
  );
  const info = requireChild(entry);
  const record: E2bRecord = {
    version: 1,
    id: info.id,
    template_id: template.id,
    alias: template.alias,
    // E2B's newer clients do not say it: their sandboxes are always secured.
    token: asked.secure === false ? undefined : newToken(),
    traffic_token: newToken(),
    has_public_ports: asked.network?.allowPublicTraffic !== false,
    metadata: asked.metadata ?? {},
    ...shownNetwork(asked.network, asked.allow_internet_access),
    user: template.user,
    workdir: template.workdir,
  };
  await recordOrKill(plane, [record], call);
  return { status: 201, body: connection(info, records.get(info.id) ?? record, { domain: plane.domain() }) };
}

function refuseUnsupported(asked: CreateRequest): void {
  if (asked.mcp !== undefined && asked.mcp !== null)
    throw unsupported(
      "mcp",
      "there is no MCP gateway in templates; forkd has its own MCP server, `forkd mcp`",
    );
  if (asked.iam !== undefined && asked.iam !== null)
    throw unsupported("iam", "sandboxes have no workload identity");
  if ((asked.volumeMounts?.length ?? 0) > 0)
    throw unsupported("volumeMounts", "there are no volumes; keep data in a snapshot of a sandbox");
  if (asked.autoPauseMemory === false)
    throw unsupported("autoPauseMemory: false", "a paused sandbox keeps its memory");
}

function envOf(given: Record<string, string>): Record<string, string> {
  const wrong = Object.keys(given).find((name) => !variableName.test(name));
  if (wrong !== undefined) throw invalid("envVars", `"${wrong}" is not a name of a variable`);
  return given;
}

/**
 * E2B's clients ask for internet access by default. On a host that cannot connect sandboxes they get none,
 * unless the request has more to say about the network.
 */
function connectable(
  { network }: Pick<Runtime, "network">,
  policy: AskedNetwork,
  asked: CreateRequest,
): AskedNetwork | undefined {
  const isPlain = asked.network === undefined || asked.network === null || policy.rules.length === 0;
  const isClosed = asked.allow_internet_access === false;
  return network.device === "none" && (isPlain || isClosed) ? undefined : policy;
}

function requireChild(entry: ForkEntry | undefined): SandboxInfo {
  if (entry === undefined) throw new AppError("internal", "The fork made no sandbox");
  if (isSandbox(entry)) return entry;
  throw fromErrorBody(entry);
}

/** A sandbox without a record could not be used: it would live until its timeout. */
async function recordOrKill(
  { runtime, records }: Plane,
  made: readonly E2bRecord[],
  { context }: Call,
): Promise<void> {
  try {
    for (const record of made) await records.set(record);
    // A client that has gone cannot own sandboxes.
    context.signal.throwIfAborted();
  } catch (error) {
    for (const { id } of made) {
      await kill(runtime, { id }).catch(() => undefined);
      await records.forget(id);
    }
    throw error;
  }
}

/** 200 if it runs, 201 if it was paused. The timeout only extends its life. */
export async function connectSandbox(plane: Plane, call: Call): Promise<Answer> {
  const { runtime } = plane;
  const { timeout, memory } = parse(connectSchema, call.body);
  if (memory === false) throw unsupported("memory: false", "a paused sandbox keeps its memory");
  const info = aliveSandbox(runtime, idOf(call));
  const record = await recordOf(plane, info);
  const isPaused = info.state === "paused";
  if (isPaused) await wake(runtime, info, timeout ?? defaultTimeoutSecs, call);
  else if (timeout !== undefined && timeout !== null) await extend(runtime, info, timeout);
  return {
    status: isPaused ? 201 : 200,
    body: connection(info, record, { domain: plane.domain() }),
  };
}

/** For old clients, which do not use connect for it. */
export async function resumeSandbox(plane: Plane, call: Call): Promise<Answer> {
  const info = aliveSandbox(plane.runtime, idOf(call));
  if (info.state !== "paused")
    throw new AppError("wrong_state", `Sandbox "${info.id}" is not paused`, { details: { id: info.id } });
  return connectSandbox(plane, call);
}

/** The time to live counts from the start of the machine. */
async function wake(
  runtime: Runtime,
  { id, workspace }: SandboxInfo,
  seconds: number,
  call: Call,
): Promise<void> {
  // Clients always name a time, but a workspace has to outlive them.
  if (workspace === undefined) await setTimeouts(runtime, { id, ttl_secs: seconds });
  await resume(runtime, { id }, call.context);
}

/** A sandbox that was not made with E2B's API gets what its clients need. */
async function recordOf({ records }: Plane, info: SandboxInfo): Promise<E2bRecord> {
  const known = records.get(info.id);
  if (known) return known;
  const record: E2bRecord = {
    version: 1,
    id: info.id,
    template_id: info.snapshot_tag,
    token: newToken(),
    traffic_token: newToken(),
    // Its ports are open only as forkd's own API says.
    has_public_ports: false,
    metadata: info.labels,
    network: undefined,
  };
  return records.add(record);
}

/** One snapshot, `count` sandboxes from it; each has the environment and the metadata of the source. */
export async function forkSandbox(plane: Plane, call: Call): Promise<Answer> {
  const { runtime, records } = plane;
  const { timeout, count } = parse(forkSchema, call.body);
  const source = aliveSandbox(runtime, idOf(call));
  const origin = await recordOf(plane, source);
  const request = {
    id: source.id,
    wait: true,
    n: count ?? 1,
    vary: [],
    env: {},
    labels: source.labels,
    ttl_secs: timeout ?? defaultTimeoutSecs,
    on_timeout: source.on_timeout,
    auto_resume: source.auto_resume,
  };
  const { children } = await plane.forks.during((tag) => branch(runtime, { ...request, tag }, call.context));
  const made = children.filter(isSandbox);
  if (made.length === 0) await plane.forks.removeUnused();
  const fresh = made.map(({ id }) => ({
    ...origin,
    id,
    token: origin.token && newToken(),
    traffic_token: origin.traffic_token && newToken(),
  }));
  await recordOrKill(plane, fresh, call);
  const body = children.map((entry) => {
    if (!isSandbox(entry)) {
      const { code, message } = errorBody(fromErrorBody(entry));
      return { error: { code, message } };
    }
    const record = records.get(entry.id) ?? { ...origin, id: entry.id };
    return { sandbox: connection(entry, record, { domain: plane.domain() }) };
  });
  return { status: 201, body };
}
