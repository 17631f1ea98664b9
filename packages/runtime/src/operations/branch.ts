/** Takes a snapshot of a running sandbox, which keeps running, and forks children from it. */
import type { BranchRequest, BranchResult } from "@forkd/contract";
import { branchSandbox } from "../capture/branch-sandbox.ts";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";

export function branch(runtime: Runtime, request: BranchRequest, context: Context): Promise<BranchResult> {
  return runtime.work.whileOpen(context.signal, (signal) =>
    branchSandbox(runtime, request, { ...context, signal }),
  );
}
