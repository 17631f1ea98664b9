/** N children from a snapshot. One entry per child, sandbox or error; a failing child does not take down the others. */
import type { ForkEntry, ForkRequest } from "@forkd/contract";
import { limitsOf } from "../admission/limits.ts";
import type { Context } from "../context.ts";
import { admit, forkSnapshot, requireOne } from "../launch/fork-children.ts";
import type { Runtime } from "../runtime.ts";

export function fork(runtime: Runtime, request: ForkRequest, context: Context): Promise<ForkEntry[]> {
  return runtime.whileOpen(context.signal, async (open) => {
    const snapshot = await runtime.snapshot(request.snapshot_tag);
    const admitted = admit(runtime, snapshot, request, limitsOf(runtime, request), context.caller);
    const entries = await forkSnapshot(runtime, snapshot, request, admitted, { ...context, signal: open });
    requireOne(entries);
    return entries;
  });
}
