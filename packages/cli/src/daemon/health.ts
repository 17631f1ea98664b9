/** Whether a daemon answers. */
import { AppError, deadlineSignal } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import { healthMs } from "./deadlines.ts";

/** Returns the daemon if it answers; undefined if nothing listens. */
export async function findDaemon(signal: AbortSignal): Promise<Forkd | undefined> {
  const forkd = await connect();
  return (await isHealthy(forkd, signal)) ? forkd : undefined;
}

/** False if nothing listens. Throws if a daemon listens but does not answer. */
export async function isHealthy(forkd: Forkd, signal: AbortSignal, ms = healthMs): Promise<boolean> {
  try {
    await checkHealth(forkd, signal, ms);
    return true;
  } catch (error) {
    if (error instanceof AppError && error.code === "daemon_unreachable" && !("timeout_ms" in error.details))
      return false;
    throw error;
  }
}

export async function checkHealth(forkd: Forkd, signal: AbortSignal, ms = healthMs): Promise<void> {
  using deadline = deadlineSignal(ms, signal);
  try {
    await forkd.call("health", {}, { signal: deadline.signal });
  } catch (error) {
    if (!deadline.isLate) throw error;
    throw new AppError("daemon_unreachable", `The daemon does not answer within ${ms / 1000} s`, {
      details: { timeout_ms: ms },
      remedy: { action: "show_daemon_log" },
      cause: error,
    });
  }
}
