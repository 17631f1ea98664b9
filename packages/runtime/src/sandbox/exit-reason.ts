/** A call into a machine that ends fails in many ways; whoever made it is told one thing: why the machine ended. */
import { AppError } from "@forkd/contract";
import { within } from "@forkd/base";
import { reasonCode } from "../admission/limits.ts";
import type { SandboxMachine } from "./sandbox-machine.ts";
import type { Sandbox } from "./sandbox.ts";

const endCodes = new Set(["engine_failed", "agent_unreachable", "host_not_ready"]);
/** for the cause of an end to be known */
const endMs = 10_000;

/** It may be how the end of a machine shows to whoever works on it. */
export function looksLikeEnd(error: unknown): boolean {
  return error instanceof AppError && endCodes.has(error.code);
}

/** What to tell of a failure: why the machine ended, if it did. Its connections end a moment before that is known. */
export async function explainEnd(
  sandbox: Sandbox,
  machine: SandboxMachine | undefined,
  error: unknown,
): Promise<unknown> {
  if (!machine || !looksLikeEnd(error)) return error;
  if (!machine.agent.isClosed && !machine.machine.isEnding) return error;
  const end = await within(machine.ended, endMs);
  const death = sandbox.death(error);
  if (death || !end) return death ?? error;
  // One that has a saved state goes back to it.
  const { reason, console } = end;
  const code = reasonCode(reason);
  return new AppError(
    "sandbox_paused",
    `The machine of ${sandbox.id} ended: ${reason}. Its saved state is kept`,
    {
      details: { id: sandbox.id, reason, ...(code !== undefined && { reason_code: code }), console },
      remedy: { action: "resume", id: sandbox.id },
      cause: error,
    },
  );
}
