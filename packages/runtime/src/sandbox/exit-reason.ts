/**
 * Why a machine ended. A call into a machine that ends fails in many ways; its caller gets one answer: why
 * the machine ended.
 */
import { AppError, type SandboxInfo } from "@forkd/contract";
import { within } from "@forkd/base";

/** Classes of reasons that a program may want to know. */
type ReasonCode = NonNullable<SandboxInfo["reason_code"]>;

/** For a person, with a code where the class of the reason is known. */
export type EndReason = { readonly text: string; readonly code?: ReasonCode };

/** A machine that ended without being asked to, with its last console lines. */
export type Loss = { readonly reason: EndReason; readonly console: string };

/** As fields of an answer or of the details of an error. */
export function reasonFields({ text, code }: EndReason): { reason: string; reason_code?: ReasonCode } {
  return { reason: text, ...(code !== undefined && { reason_code: code }) };
}

/** The error for callers of a dead sandbox. */
export function deadError(dead: { id: string; tag: string }, end: Loss, cause?: unknown): AppError {
  const { id, tag } = dead;
  const { reason, console } = end;
  return new AppError("sandbox_dead", `Cannot use ${id}: it is dead (${reason.text})`, {
    details: { id, ...reasonFields(reason), console },
    remedy: { action: "rewind_or_fork", id, tag },
    cause,
  });
}

const endCodes = new Set(["engine_failed", "agent_unreachable", "host_not_ready"]);
/** how long to wait for the reason */
const reasonMs = 10_000;

/** Callers see such an error when a machine ends during their call. */
export function looksLikeEnd(error: unknown): boolean {
  return error instanceof AppError && endCodes.has(error.code);
}

/** What explainEnd() needs of a sandbox. */
type CalledSandbox = { readonly id: string; death(cause?: unknown): AppError | undefined };

/** What explainEnd() needs of the machine that was called. */
type CalledMachine = {
  readonly agent: { readonly isClosed: boolean };
  readonly machine: { readonly isEnding: boolean };
  readonly ended: Promise<Loss>;
};

/**
 * The error to report: why the machine ended, if it did. Its connections close a moment before the reason is
 * known.
 */
export async function explainEnd(
  sandbox: CalledSandbox,
  machine: CalledMachine | undefined,
  error: unknown,
): Promise<unknown> {
  if (!machine || !looksLikeEnd(error)) return error;
  if (!machine.agent.isClosed && !machine.machine.isEnding) return error;
  const end = await within(machine.ended, reasonMs);
  const death = sandbox.death(error);
  if (death || !end) return death ?? error;
  const { reason, console } = end;
  return new AppError(
    "sandbox_paused",
    `The machine of ${sandbox.id} ended: ${reason.text}. Its saved state is kept`,
    {
      details: { id: sandbox.id, ...reasonFields(reason), console },
      remedy: { action: "resume", id: sandbox.id },
      cause: error,
    },
  );
}
