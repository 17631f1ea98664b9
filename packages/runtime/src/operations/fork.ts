/** N children from a snapshot. One entry per child, sandbox or error; a failing child does not take down the others. */
import { AppError, isSandbox, toErrorBody, type ForkEntry, type ForkRequest } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { requireCompatible } from "../compatibility.ts";
import type { Context } from "../context.ts";
import { prepareChild, startChild } from "../launch.ts";
import type { Runtime } from "../open-runtime.ts";
import { explain } from "../removed-meanwhile.ts";

/** What is asked of the children, whatever they are forked from. */
export type ChildrenRequest = Pick<ForkRequest, "n" | "labels" | "env" | "vary" | "ttl_secs"> & {
  workspace?: string | undefined;
};

export function fork(runtime: Runtime, request: ForkRequest, context: Context): Promise<ForkEntry[]> {
  return runtime.whileOpen(context.signal, async (open) => {
    const snapshot = await runtime.snapshot(request.snapshot_tag);
    admit(runtime, request.n);
    const entries = await forkSnapshot(runtime, snapshot, request, { ...context, signal: open });
    requireOne(entries);
    return entries;
  });
}

/** The caller has been admitted and runs it while the runtime is open. Gives the places back that it does not fill. */
export async function forkSnapshot(
  runtime: Runtime,
  snapshot: StoredSnapshot,
  request: ChildrenRequest,
  { signal, log, caller }: Context,
): Promise<ForkEntry[]> {
  const askedAt = performance.now();
  try {
    requireCompatible(snapshot.tag, snapshot.manifest, runtime.host);
    await runtime.store.verify(snapshot, { signal });
  } catch (error) {
    runtime.pendingForks -= request.n;
    throw await explain(runtime, snapshot, error);
  }
  const one = async (index: number): Promise<ForkEntry> => {
    try {
      signal?.throwIfAborted();
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
        askedAt,
        pooled: pooled !== undefined,
      });
      runtime.registry.add(sandbox);
      return sandbox.info();
    } catch (thrown) {
      const error = await explain(runtime, snapshot, thrown);
      log.warn({ event: "sandbox.fork", outcome: "failed", index, error });
      return { ...toErrorBody(error), index };
    } finally {
      runtime.pendingForks--;
    }
  };
  const entries = await runtime.pool.during(snapshot, () =>
    Promise.all(Array.from({ length: request.n }, (_, index) => runtime.forkSlots.run(() => one(index)))),
  );
  await giveBackIfAborted(runtime, entries, signal);
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

/** Refuses before anything is started; reserves n places, which the caller gives back in `pendingForks`. */
export function admit(runtime: Runtime, n: number): void {
  const { maxSandboxes } = runtime.config;
  const live = runtime.registry.live + runtime.pendingForks;
  if (live + n > maxSandboxes) {
    throw new AppError(
      "capacity_exhausted",
      `Cannot fork ${n}: ${live} sandboxes are live and the limit is ${maxSandboxes}. Kill some or raise FORKD_MAX_SANDBOXES`,
      { details: { live, asked: n, limit: maxSandboxes } },
    );
  }
  runtime.pendingForks += n;
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
  throw new AppError(first.code as AppError["code"], first.error, {
    details: { ...first.details, children: entries.length },
  });
}
