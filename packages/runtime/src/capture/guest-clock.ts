/** The wall clock of a guest that stood still. */
import { AppError } from "@forkd/contract";
import { withDeadline } from "@forkd/base";
import type { AgentClient } from "@forkd/machine";

export const clockMs = 1000;
const attempts = 3;
const soonMs = 5;

/**
 * Sets it. Gives what it lacked, in milliseconds, if the guest tells. A guest that is busy takes the time late, so it is told
 * again until it takes it soon.
 */
export async function correctClock(agent: AgentClient): Promise<number | undefined> {
  let lackedMs: number | undefined;
  for (let attempt = 1; attempt <= attempts; attempt++) {
    const sentAt = performance.now();
    let sentNs = 0n;
    try {
      const { guestBeforeNs } = await withDeadline(
        agent.setClock(() => (sentNs = wallClock())),
        clockMs,
        () => new AppError("agent_unreachable", "The guest did not set its clock in time"),
      );
      const tripMs = performance.now() - sentAt;
      // The guest looked at its clock somewhere between the question and the answer.
      lackedMs ??= Math.max(0, Number(sentNs - guestBeforeNs) / 1e6 + tripMs / 2);
      if (tripMs < soonMs) break;
    } catch {
      // A guest that does not answer now has a clock that lags; nothing else depends on it.
      break;
    }
  }
  return lackedMs;
}

/** The host's wall clock in nanoseconds since the epoch; steps of the clock are followed. */
export function wallClock(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}
