/** N children of a snapshot: one entry per child, sandbox or error. */
import type { ForkEntry, ForkRequest } from "@forkd/contract";
import { limitsOf } from "../admission/limits.ts";
import type { Context } from "../context.ts";
import { admitFork, forkChildren, requireSandbox } from "../launch/fork-children.ts";
import { networkForFork } from "../network/asked-network.ts";
import type { Runtime } from "../runtime.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";

export function fork(runtime: Runtime, request: ForkRequest, context: Context): Promise<ForkEntry[]> {
  return runtime.work.whileOpen(context.signal, async (signal) => {
    const snapshot = await usableSnapshot(runtime, request.snapshot_tag);
    const network = networkForFork(runtime, snapshot, request, context.caller);
    const plan = { snapshot, request, limits: limitsOf(runtime, request), network };
    const admitted = admitFork(runtime, plan, context.caller);
    const entries = await forkChildren(runtime, admitted, { ...context, signal });
    requireSandbox(entries);
    return entries;
  });
}
