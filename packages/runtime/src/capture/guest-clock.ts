/** Corrects the wall clock of a guest that was stopped. */
import { AppError } from "@forkd/contract";
import { withDeadline } from "@forkd/base";
import type { AgentClient } from "@forkd/machine";

export const clockMs = 1000;
const attempts = 3;
const soonMs = 5;

/**
 * Returns how far the clock was behind, in milliseconds, if the guest answers. A busy guest sets its clock
 * late, so the time is sent again until the guest answers quickly.
 */
export async function correctClock(agent: AgentClient): Promise<number | undefined> {
  let behindMs: number | undefined;
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
      // The guest read its clock somewhere between the request and the reply.
      behindMs ??= Math.max(0, Number(sentNs - guestBeforeNs) / 1e6 + tripMs / 2);
      if (tripMs < soonMs) break;
    } catch {
      // The clock of a guest that does not answer stays behind; nothing else depends on it.
      break;
    }
  }
  return behindMs;
}

/** The host's wall clock in nanoseconds since the epoch. It follows steps of the clock. */
export function wallClock(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}
