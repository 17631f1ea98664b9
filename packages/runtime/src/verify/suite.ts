/** Runs checks: each has a deadline, several run at the same time, and one that throws has failed. */
import { AppError, errorMessage, type HazardId, type HazardResult } from "@forkd/contract";
import { mapPool, roundMs, withDeadline } from "@forkd/base";
import { CannotCheck, type Hazard, type Lab, type Outcome, type Subject } from "./hazard.ts";

/** long enough for emulated guests on a busy host */
const prepareMs = 180_000;
const checkMs = 600_000;
/** more would only compete for the CPUs of the host */
const atOnce = 4;

/** Hazards whose preparation did not succeed, with the outcome that this means. */
export type Unprepared = ReadonlyMap<HazardId, Outcome>;

/** One after the other: the guest often has one CPU, and what they start runs at the same time in any case. */
export async function prepareAll(
  hazards: readonly Hazard[],
  source: Subject,
  lab: Pick<Lab, "scratch">,
  signal: AbortSignal,
): Promise<Unprepared> {
  const failed = new Map<HazardId, Outcome>();
  for (const hazard of hazards) {
    if (!hazard.prepare) continue;
    try {
      await inTime(hazard.prepare(source, lab), prepareMs, signal);
    } catch (error) {
      signal.throwIfAborted();
      failed.set(hazard.id, outcomeOf(error));
    }
  }
  return failed;
}

export async function checkAll(
  hazards: readonly Hazard[],
  lab: Lab,
  options: {
    unprepared: Unprepared;
    signal: AbortSignal;
    onResult: (result: HazardResult) => void;
    /** for one check */
    timeoutMs?: number;
  },
): Promise<HazardResult[]> {
  const { unprepared, signal, onResult, timeoutMs = checkMs } = options;
  const results = await mapPool(hazards, atOnce, async (hazard) => {
    const startedAt = performance.now();
    const outcome =
      unprepared.get(hazard.id) ??
      (signal.aborted ? undefined : await check(hazard.check(lab), timeoutMs, signal));
    if (!outcome || signal.aborted) return undefined;
    const { id, title, policy, mechanism } = hazard;
    const duration_ms = roundMs(performance.now() - startedAt);
    const result = {
      id,
      title,
      policy,
      mechanism,
      ...outcome,
      checked_at_unix: Date.now() / 1000,
      duration_ms,
    };
    onResult(result);
    return result;
  });
  signal.throwIfAborted();
  return results.filter((result) => result !== undefined);
}

async function check(work: Promise<Outcome>, timeoutMs: number, signal: AbortSignal): Promise<Outcome> {
  try {
    return await inTime(work, timeoutMs, signal);
  } catch (error) {
    return outcomeOf(error);
  }
}

function outcomeOf(error: unknown): Outcome {
  if (error instanceof CannotCheck) {
    const { message, absent } = error;
    return { outcome: "not_applicable", detail: message, ...(absent && { absent }) };
  }
  return { outcome: "fail", detail: `the check did not succeed: ${errorMessage(error)}` };
}

/** Work that is given up ends with its sandboxes, which are killed when the run ends. */
async function inTime<T>(work: Promise<T>, ms: number, signal: AbortSignal): Promise<T> {
  work.catch(() => undefined);
  let gone = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => {
    gone = () => reject(signal.reason instanceof Error ? signal.reason : new Error("cancelled"));
  });
  if (signal.aborted) gone();
  signal.addEventListener("abort", gone, { once: true });
  try {
    return await withDeadline(
      Promise.race([work, aborted]),
      ms,
      () =>
        new AppError("deadline_exceeded", `not done within ${ms / 1000} s`, { details: { timeout_ms: ms } }),
    );
  } finally {
    signal.removeEventListener("abort", gone);
  }
}
