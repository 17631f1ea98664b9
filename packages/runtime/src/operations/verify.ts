/** Checks that children of a snapshot are safe, and stores the result. */
import type { VerifyReport, VerifyRequest } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";
import { verifySnapshot, type VerifyHooks } from "../verify/verify-snapshot.ts";

export function verify(
  runtime: Runtime,
  request: VerifyRequest,
  context: Context & VerifyHooks,
): Promise<VerifyReport> {
  return runtime.work.whileOpen(context.signal, async (signal) => {
    const snapshot = await usableSnapshot(runtime, request.tag);
    return verifySnapshot(runtime, snapshot, request, { ...context, signal });
  });
}
