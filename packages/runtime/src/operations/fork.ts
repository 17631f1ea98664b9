/** N children from a snapshot. One entry per child, sandbox or error; a failing child does not take down the others. */
import {
  AppError,
  isSandbox,
  fromErrorBody,
  toErrorBody,
  type AskedLimits,
  type ForkEntry,
  type ForkRequest,
} from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { requireCompatible } from "../snapshots/compatibility.ts";
import type { Context } from "../context.ts";
import { diskShare, memoryShare, type Reservation } from "../admission/admission.ts";
import { prepareChild, startChild } from "../launch/launch.ts";
import { limitsOf, requireEnforceable } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxTimeouts } from "../sandbox/facts.ts";
import { explainMissingSnapshot } from "../snapshots/missing-snapshot.ts";

/** What is asked of the children, whatever they are forked from. */
export type ChildrenRequest = Pick<
  ForkRequest,
  "n" | "labels" | "env" | "vary" | "ttl_secs" | "idle_timeout_secs" | "on_timeout" | "auto_resume"
> & {
  workspace?: string | undefined;
};
/** Room that was reserved for the children, and what they are held to. */
export type Admitted = { places: Reservation; limits: AskedLimits | undefined };

export function fork(runtime: Runtime, request: ForkRequest, context: Context): Promise<ForkEntry[]> {
  return runtime.whileOpen(context.signal, async (open) => {
    const snapshot = await runtime.snapshot(request.snapshot_tag);
    const admitted = admit(runtime, snapshot, request, limitsOf(runtime, request), context.caller);
    const entries = await forkSnapshot(runtime, snapshot, request, admitted, { ...context, signal: open });
    requireOne(entries);
    return entries;
  });
}

/** The caller runs it while the runtime is open. Gives all places back: children that are there count by themselves. */
export async function forkSnapshot(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  request: ChildrenRequest,
  { places: reserved, limits }: Admitted,
  { signal, log, caller }: Context,
): Promise<ForkEntry[]> {
  using places = reserved;
  const askedAt = performance.now();
  try {
    requireCompatible(snapshot.tag, snapshot.manifest, runtime.host);
    await runtime.store.verify(snapshot, { signal });
  } catch (error) {
    throw await explainMissingSnapshot(runtime, snapshot, error);
  }
  const call = { caller: caller?.name ?? "", signal };
  const one = async (index: number): Promise<ForkEntry> => {
    try {
      using _start = await runtime.starts.take(call);
      const pooled = runtime.pool.take(snapshot);
      const child = pooled ?? (await prepareChild(runtime, snapshot, signal));
      const variation = request.vary[index];
      const sandbox = await startChild(runtime, child, {
        index,
        env: { ...request.env, ...variation?.env },
        values: variation?.values,
        labels: request.labels,
        ttlSecs: request.ttl_secs,
        workspace: request.workspace,
        owner: caller?.name,
        limits,
        timeouts: timeoutsOf(request),
        askedAt,
        pooled: pooled !== undefined,
      });
      runtime.registry.add(sandbox);
      const info = sandbox.info();
      runtime.events.sandbox("sandbox.created", info);
      runtime.metrics.readySeconds.observe(info.ready_ms / 1000);
      return info;
    } catch (thrown) {
      const error = await explainMissingSnapshot(runtime, snapshot, thrown);
      log.warn({ event: "sandbox.fork", outcome: "failed", index, error });
      const body = toErrorBody(error);
      runtime.metrics.childFailures.add({ code: body.code });
      return { ...body, index };
    } finally {
      places.giveBack();
    }
  };
  const entries = await runtime.pool.during(snapshot, () =>
    Promise.all(Array.from({ length: request.n }, (_, index) => one(index))),
  );
  await giveBackIfAborted(runtime, entries, signal);
  await Promise.all(entries.map((entry, index) => handOut(runtime, entries, entry, index)));
  runtime.metrics.forkSeconds.observe((performance.now() - askedAt) / 1000);
  learnFrom(runtime, snapshot);
  log.info({
    event: "sandbox.fork",
    outcome: "ok",
    tag: snapshot.tag,
    n: request.n,
    failed: entries.filter((entry) => !isSandbox(entry)).length,
    durationMs: Math.round(performance.now() - askedAt),
  });
  return entries;
}

/** Refuses before anything is started what cannot be held, or what there is no room for. The caller owns the places. */
export function admit(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  { n }: { n: number },
  limits: AskedLimits | undefined,
  caller: Context["caller"],
): Admitted {
  requireEnforceable(runtime, limits);
  const { machine, files } = snapshot.manifest;
  const memoryMib = memoryShare(machine.memory_mib, limits?.memory_mib);
  const places = runtime.admission.admit({
    what: `fork ${n}`,
    n,
    memoryMib,
    expectMib: runtime.memoryEstimates.of(snapshot.id),
    diskMib: diskShare(files.rootfs.bytes, limits?.disk_mib),
    caller,
  });
  return { places, limits };
}

/** A workspace is kept where others are killed. */
function timeoutsOf(request: ChildrenRequest): SandboxTimeouts {
  return {
    idleSecs: request.idle_timeout_secs,
    onTimeout: request.on_timeout ?? (request.workspace === undefined ? "kill" : "pause"),
    autoResume: request.auto_resume ?? false,
  };
}

/** The oldest child has had most time to grow. */
function learnFrom(runtime: Runtime, snapshot: StoredSnapshot): void {
  const child = runtime.registry.all().find(({ machineAtWork }) => machineAtWork?.base.id === snapshot.id);
  const pid = child?.machineAtWork?.machine.process.pid;
  if (pid !== undefined) void runtime.memoryEstimates.learn(snapshot.id, pid);
}

/** From now on a later daemon knows the child. One that cannot be made known is none. */
async function handOut(
  runtime: Runtime,
  entries: ForkEntry[],
  entry: ForkEntry,
  index: number,
): Promise<void> {
  const sandbox = isSandbox(entry) ? runtime.registry.find(entry.id) : undefined;
  if (!sandbox) return;
  try {
    await sandbox.record.commit();
  } catch (error) {
    entries[index] = { ...toErrorBody(sandbox.death() ?? error), index };
    if (runtime.registry.find(sandbox.id)) await runtime.registry.remove(sandbox.id);
  }
}

/** A caller that has gone cannot own children. */
async function giveBackIfAborted(
  runtime: Runtime,
  entries: ForkEntry[],
  signal: AbortSignal | undefined,
): Promise<void> {
  if (!signal?.aborted) return;
  await Promise.all(
    entries.filter(isSandbox).map(async (entry) => {
      if (runtime.registry.find(entry.id)) await runtime.registry.remove(entry.id);
    }),
  );
  throw new AppError("cancelled", "The fork was cancelled; its children were removed");
}

/** Throws what went wrong with the first if there is no sandbox among them. */
export function requireOne(entries: ForkEntry[]): void {
  const [first] = entries;
  if (first === undefined || entries.some(isSandbox) || isSandbox(first)) return;
  throw fromErrorBody({ ...first, details: { ...first.details, children: entries.length } });
}
