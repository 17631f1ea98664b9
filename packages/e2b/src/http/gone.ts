/** Answers for a sandbox that cannot be reached. */
import type { AppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";

const goneCodes = new Set([
  "sandbox_not_found",
  "sandbox_paused",
  "sandbox_dead",
  "agent_unreachable",
  "daemon_stopping",
  "engine_failed",
]);

/** The machine of the sandbox has ended or does not answer. Clients recognise it by the status 502. */
export function isGone(error: AppError): boolean {
  return goneCodes.has(error.code);
}

/** Like isGone(), for an error in the middle of an answer: killing a sandbox ends its calls in many ways. */
export function hasEnded(runtime: Runtime, id: string, error: AppError): boolean {
  return isGone(error) || runtime.registry.find(id)?.state !== "running";
}

export function goneBody(id: string, error: AppError): { sandboxId: string; message: string; code: 502 } {
  const message = error.code === "sandbox_not_found" ? "The sandbox was not found" : error.message;
  return { sandboxId: id, message, code: 502 };
}

/** Throws what a call into the sandbox would, without calling it. */
export function requireReachable(runtime: Runtime, id: string): void {
  const sandbox = runtime.registry.get(id);
  if (sandbox.needsResume && sandbox.timeouts.autoResume) return;
  void sandbox.current;
}
